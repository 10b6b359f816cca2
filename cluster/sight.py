"""What this instance knows of the cluster: who is in it, who leads, and who owns what. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from cluster.assignment import NOBODY, LogicalQueuePlace
from cluster.catalog import Catalog
from cluster.membership import Member, Membership
from querator.errors import InvalidRequest

_BETWEEN = "~"  # a queue's name and a number in a pivot; no queue has it in its name


class PlacedLogicalQueue(NamedTuple):
    queue_name: str
    place: LogicalQueuePlace


class OwnedPartition(NamedTuple):
    partition: int
    instance: str  # `NOBODY` if none owns it now
    address: str  # where clients reach that instance; empty if that is not known
    logical_queue: int
    epoch: int


class ClusterSight:
    """Answered from memory; it may be a little old. ``leader`` gives the id of who leads, empty if that is not known."""

    def __init__(self, catalog: Catalog, membership: Membership) -> None:
        self.leader: Callable[[], str] = lambda: ""
        self._catalog = catalog
        self._membership = membership
        self._members = membership.members

    @property
    def has_others(self) -> bool:
        return len(self._members) > 1

    def instances(self) -> list[Member]:
        """In the order of their ids; this one is always among them."""
        me = self._membership.me
        others = [member for member in self._members.values() if member.id != me.id]
        return sorted([me, *others], key=lambda member: member.id)

    def address(self, instance: str) -> str:
        """Where clients reach an instance, if it is in the cluster and says so."""
        me = self._membership.me
        member = me if instance == me.id else self._members.get(instance)
        if member is not None and member is not me and member.addresses == me.addresses:
            return ""  # workers behind one address: whoever goes there may come back to this one
        address = member.addresses[0] if member is not None and member.addresses else ""
        return address if address.isascii() and address.isprintable() and " " not in address else ""

    def partitions_without_owner(self) -> int:
        """Partitions that nobody who is in the cluster owns."""
        there = {member.id for member in self.instances()}
        total = sum(len(queue.partitions) for queue in self._catalog.all())
        places = [
            place for queue in self._catalog.all() for place in self._catalog.assignment(queue.name).logical_queues
        ]
        return total - sum(len(place.partitions) for place in places if place.instance in there)

    def logical_queues(self, pivot: str, limit: int) -> list[PlacedLogicalQueue]:
        """In the order of queue names and numbers, from the pivot on: a queue's name, or `name~number`."""
        return list(islice(self._from(pivot), limit))

    def _from(self, pivot: str) -> Iterator[PlacedLogicalQueue]:
        name, separator, text = pivot.partition(_BETWEEN)
        if separator and not (text.isascii() and text.isdigit()):
            raise InvalidRequest("pivot is invalid", "it must be the name of a queue, or `name~number`")
        for queue in self._catalog.all():
            if queue.name < name:
                continue
            places = self._catalog.assignment(queue.name).logical_queues
            for place in sorted(places, key=lambda place: place.number):
                if queue.name > name or place.number >= int(text or 0):
                    yield PlacedLogicalQueue(queue.name, place)

    def owners(self, queue_name: str) -> list[OwnedPartition]:
        """Who owns each partition of a queue, as it is assigned, whether or not the owner answers."""
        queue = self._catalog.get(queue_name)
        assignment = self._catalog.assignment(queue_name)
        places = {number: place for place in assignment.logical_queues for number in place.partitions}
        owned = []
        for partition in queue.partitions:
            place = places.get(partition.number)
            if place is None:
                owned.append(OwnedPartition(partition.number, NOBODY, "", 0, partition.epoch))
            else:
                address = self.address(place.instance)
                owned.append(OwnedPartition(partition.number, place.instance, address, place.number, place.epoch))
        return owned
