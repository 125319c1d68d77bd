"""Which connections network policies allow: a small reading of the rules of Kubernetes."""

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address, ip_network
from typing import Any, NamedTuple

Policy = Mapping[str, Any]


class End(NamedTuple):
    """An end of a connection: a pod with labels in a namespace, or an address outside of them."""

    labels: Mapping[str, str] | None = None
    namespace: str = "tokenlake"
    address: str = ""


def is_allowed(
    policies: Iterable[Policy], source: End, target: End, port: int, protocol: str = "TCP"
) -> bool:
    """Return whether a connection is allowed by the policies of both ends."""
    policies = [*policies]
    return all(
        any(_covers(rule, peers, other, port, protocol) for rule in rules)
        for end, direction, peers, other in (
            (source, "Egress", "to", target),
            (target, "Ingress", "from", source),
        )
        if (rules := _rules(policies, end, direction)) is not None
    )


def _rules(policies: Iterable[Policy], end: End, direction: str) -> list[Policy] | None:
    """Return the rules for a pod; None if no policy selects it, so that everything is allowed."""
    specs = [
        policy["spec"]
        for policy in policies
        if end.labels is not None
        and policy["metadata"]["namespace"] == end.namespace
        and _selects(policy["spec"]["podSelector"], end.labels)
        and direction in policy["spec"]["policyTypes"]
    ]
    return [rule for spec in specs for rule in spec.get(direction.lower(), [])] if specs else None


def _covers(rule: Policy, peers: str, other: End, port: int, protocol: str) -> bool:
    ports = rule.get("ports")
    is_port = ports is None or any(
        each["port"] == port and each.get("protocol", "TCP") == protocol for each in ports
    )
    return is_port and (peers not in rule or any(_is_peer(each, other) for each in rule[peers]))


def _is_peer(peer: Policy, end: End) -> bool:
    """Return whether a rule names an end: blocks of addresses are for what is no pod."""
    if "ipBlock" in peer:
        if end.labels is not None:
            return False
        return _is_in(end.address, peer["ipBlock"]["cidr"]) and not any(
            _is_in(end.address, block) for block in peer["ipBlock"].get("except", [])
        )
    if end.labels is None:
        return False
    if "namespaceSelector" in peer:
        labels = {"kubernetes.io/metadata.name": end.namespace}
        is_there = _selects(peer["namespaceSelector"], labels)
    else:
        is_there = end.namespace == "tokenlake"
    return is_there and _selects(peer.get("podSelector", {}), end.labels)


def _is_in(address: str, block: str) -> bool:
    return ip_address(address) in ip_network(block)


def _selects(selector: Policy, labels: Mapping[str, str]) -> bool:
    assert selector.keys() <= {"matchLabels", "matchExpressions"}
    assert all(each["operator"] == "In" for each in selector.get("matchExpressions", []))
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(each["key"]) in each["values"] for each in selector.get("matchExpressions", [])
    )


def connections(
    policies: Iterable[Policy],
    sources: Mapping[str, End],
    targets: Mapping[str, End],
    ports: Iterable[int],
) -> Iterator[tuple[str, str, int]]:
    """Yield the connections that are allowed, by the names of their ends."""
    policies, ports = [*policies], [*ports]
    for source, from_ in sources.items():
        for target, to in targets.items():
            for port in ports:
                if source != target and is_allowed(policies, from_, to, port):
                    yield source, target, port
