// Numbers, ages and sizes as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });
const UNITS_MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

export const UNKNOWN = "–";

export function count(number) {
  return number < 1_000_000 ? whole.format(number) : short.format(number);
}

/** A rate per second; null is one that is not known yet. */
export function rate(number) {
  if (number === null || number === undefined) return UNKNOWN;
  return number > 0 && number < 9.95 ? number.toFixed(1) : count(Math.round(number));
}

/** `1m30s`, as the API writes durations, in milliseconds. */
export function parseDuration(text) {
  let sum = 0;
  for (const [, number, unit] of (text ?? "").matchAll(/([\d.]+)(ms|s|m|h|d)/g)) sum += Number(number) * UNITS_MS[unit];
  return sum;
}

export function age(ms) {
  if (!ms) return UNKNOWN;
  if (ms < 1000) return "< 1 s";
  if (ms < 100_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 6_000_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${(ms / 3_600_000).toFixed(1)} h`;
  return `${(ms / 86_400_000).toFixed(1)} d`;
}

/** An instant, as a local date and time. */
export function instant(text) {
  if (!text) return UNKNOWN;
  const at = new Date(text);
  const pad = (number) => String(number).padStart(2, "0");
  const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  return `${day} ${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}

export function size(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  if (bytes < 1_000_000) return `${(bytes / 1000).toFixed(1)} kB`;
  return `${(bytes / 1_000_000).toFixed(1)} MB`;
}

export function plural(number, word, many = `${word}s`) {
  return `${count(number)} ${number === 1 ? word : many}`;
}
