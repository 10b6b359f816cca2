// Calls the API of the instance that served this page, and asks again and again what a page shows.

const CALL_TIMEOUT_MS = 15_000;

export class CallError extends Error {
  /** `code` is that of the API; 0 means that nobody answered. */
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/** Ask the API; answers with what it says, or raises a CallError. */
export async function call(name, fields = {}, signal = undefined) {
  const limit = AbortSignal.timeout(CALL_TIMEOUT_MS);
  let response;
  let text;
  try {
    response = await fetch(`../v1/${name}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "Querator-Extended": "1" },
      body: JSON.stringify(fields),
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
      cache: "no-store",
    });
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new CallError(0, "the server does not answer");
  }
  return read(response, text);
}

function read(response, text) {
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    throw new CallError(response.status, `the answer with status ${response.status} is no JSON`);
  }
  if (response.ok) return answer;
  throw new CallError(response.status, answer.message ?? answer.code_text ?? `status ${response.status}`);
}

export function explain(error) {
  if (!(error instanceof CallError)) return String(error);
  if (error.code === 0) return `${error.message}; trying again`;
  return `${error.code}: ${error.message}${error.code === 454 ? "; trying again" : ""}`;
}

/** Do `work` for each of `things`, a few at a time. Ends early when aborted. */
export async function each(things, atOnce, signal, work) {
  const waiting = things[Symbol.iterator]();
  const lane = async () => {
    for (const thing of waiting) {
      if (signal.aborted) return;
      await work(thing);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, lane));
}

/**
 * Run `work` now and again after `everyMs()`, never twice at once, until aborted. While nobody looks at the page it waits.
 * Returns a function that lets it run at once. `failed` is told of errors; the next run comes all the same.
 */
export function poll(work, everyMs, signal, failed) {
  let wake = () => {};
  let asked = false;
  const pause = () =>
    new Promise((resolve) => {
      const timer = setTimeout(resolve, everyMs());
      wake = () => {
        clearTimeout(timer);
        resolve();
      };
      if (asked || signal.aborted) wake();
      asked = false;
    });
  const run = async () => {
    while (!signal.aborted) {
      asked = false;
      if (!document.hidden) {
        try {
          await work();
        } catch (error) {
          if (!signal.aborted) failed(error);
        }
      }
      if (!signal.aborted) await pause();
    }
  };
  signal.addEventListener("abort", () => wake());
  document.addEventListener("visibilitychange", () => wake(), { signal });
  void run();
  return () => {
    asked = true;
    wake();
  };
}
