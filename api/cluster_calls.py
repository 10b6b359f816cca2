"""Who is in the cluster and who owns what: `cluster.*`."""

from __future__ import annotations

from api.checks import check_limit
from cluster.membership import Member
from cluster.router import Router
from cluster.sight import OwnedPartition, PlacedLogicalQueue
from querator import wire
from querator.durations import to_instant
from querator.limits import Limits


class ClusterCalls:
    def __init__(self, router: Router, limits: Limits) -> None:
        self._router = router
        self._limits = limits

    async def info(self, request: wire.ClusterInfoRequest, _extended: bool) -> wire.ClusterInfoAnswer:
        leader = self._router.sight.leader()
        found = self._router.sight.logical_queues(request.pivot, check_limit(request.limit, self._limits))
        return wire.ClusterInfoAnswer(
            instances=[_instance(member, leader) for member in self._router.sight.instances()],
            leader=leader,
            logical_queues=[_logical_queue(each) for each in found],
        )

    async def route(self, request: wire.ClusterRouteRequest, _extended: bool) -> wire.ClusterRouteAnswer:
        owners = self._router.sight.owners(request.queue_name)
        return wire.ClusterRouteAnswer(
            queue_name=request.queue_name,
            partitions=[_partition(owned) for owned in owners],
            addresses=[member.addresses[0] for member in self._router.sight.instances() if member.addresses],
        )


def _instance(member: Member, leader: str) -> wire.InstanceInfo:
    return wire.InstanceInfo(
        id=member.id,
        host=member.host,
        addresses=list(member.addresses),
        version=member.version,
        started_at=to_instant(member.started_at_ms),
        draining=member.draining,
        backends=sorted(member.backends),
        leader=member.id == leader,
    )


def _logical_queue(found: PlacedLogicalQueue) -> wire.LogicalQueueInfo:
    place = found.place
    return wire.LogicalQueueInfo(
        queue_name=found.queue_name,
        number=place.number,
        instance=place.instance,
        epoch=place.epoch,
        partitions=list(place.partitions),
    )


def _partition(owned: OwnedPartition) -> wire.PartitionRoute:
    return wire.PartitionRoute(
        partition=owned.partition,
        instance=owned.instance,
        address=owned.address,
        logical_queue=owned.logical_queue,
        epoch=owned.epoch,
    )
