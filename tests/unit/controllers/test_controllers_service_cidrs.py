"""ServiceCIDRs, IPAddresses and services, however they come and go: no address of a service is orphaned, and at rest
each has one IPAddress."""

from __future__ import annotations

import random
import tempfile
from ipaddress import ip_address, ip_network
from pathlib import Path

from api_core import Core
from hypothesis import example, given, settings
from hypothesis import strategies as st
from virtual_time import run_virtually

from minikube_py.apiserver.address_repair import INTERVAL_S
from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.inprocess import InProcessTransport
from minikube_py.controllers.manager import ControllerManager
from minikube_py.controllers.service_cidrs import GRACE_S, ServiceCidrs

CIDRS, IPS = "/apis/networking.k8s.io/v1/servicecidrs", "/apis/networking.k8s.io/v1/ipaddresses"
SERVICES = "/api/v1/namespaces/default/services"
NETWORKS = {"wide": "10.9.0.0/24", "same": "10.9.0.0/24", "low": "10.9.0.0/29", "high": "10.9.0.248/29"}
ADDRESSES = ("10.9.0.2", "10.9.0.100", "10.9.0.250")
Step = tuple[str, str]
STEPS = st.lists(
    st.tuples(st.sampled_from(("add", "add", "remove")), st.sampled_from(sorted(NETWORKS)))
    | st.tuples(st.sampled_from(("serve", "serve", "end", "steal")), st.sampled_from(ADDRESSES)),
    max_size=16,
)


@settings(max_examples=6, deadline=None)
@given(steps=STEPS, pause_s=st.sampled_from((0.0, 1.0, GRACE_S + 2)))
@example([("add", "wide"), ("serve", "10.9.0.2"), ("remove", "wide"), ("end", "10.9.0.2")], 1.0)
@example([("add", "wide"), ("serve", "10.9.0.2"), ("add", "low"), ("remove", "wide"), ("steal", "10.9.0.2")], 1.0)
@example([("add", "low"), ("serve", "10.9.0.2"), ("remove", "low")], 1.0)
@example([("add", "same"), ("add", "low"), ("remove", "same"), ("serve", "10.9.0.2"), ("remove", "low")], 0.0)
def test_at_rest_each_address_of_a_service_is_held(steps: list[Step], pause_s: float) -> None:
    async def run(folder: str) -> None:
        core = await Core(Path(folder)).start()
        transport = InProcessTransport(core.api, ADMIN)
        manager = ControllerManager(transport, core.clock, random.Random(1), names=[ServiceCidrs.name])
        await manager.start()
        for what, which in steps:
            if what == "add":
                await core.ask("POST", CIDRS, {"metadata": {"name": which}, "spec": {"cidrs": [NETWORKS[which]]}})
            elif what == "remove":
                await core.ask("DELETE", f"{CIDRS}/{which}")
            elif what == "serve":
                service = {"metadata": {"name": _named(which)}, "spec": {"clusterIP": which, "ports": [{"port": 80}]}}
                await core.ask("POST", SERVICES, service)
            else:
                await core.ask("DELETE", f"{SERVICES}/{_named(which)}" if what == "end" else f"{IPS}/{which}")
            await core.clock.sleep(pause_s)
        await core.clock.sleep(INTERVAL_S + GRACE_S + 2)
        cidrs = (await core.done("GET", CIDRS))["items"]
        held = {each["spec"]["clusterIP"] for each in (await core.done("GET", SERVICES))["items"]}
        assert held == {each["metadata"]["name"] for each in (await core.done("GET", IPS))["items"]}
        for address in held:
            # As upstream's, the controller lets one go for the sake of another that is going as well.
            assert _holders(cidrs, address) or len(_removed(steps, address)) > 1, address
        for each in cidrs:
            (ready,) = each["status"]["conditions"]
            deleting = "deletionTimestamp" in each["metadata"]
            assert ready["status"] == str(not deleting)
            assert not deleting or any(_holders(cidrs, address) == [each["metadata"]["name"]] for address in held)
        await manager.stop()
        await core.stop()

    with tempfile.TemporaryDirectory() as folder:
        run_virtually(lambda: run(folder))


def _named(address: str) -> str:
    return f"s{address.rpartition('.')[2]}"


def _removed(steps: list[Step], address: str) -> list[str]:
    gone = [which for what, which in steps if what == "remove"]
    return [which for which in gone if ip_address(address) in ip_network(NETWORKS[which])]


def _holders(cidrs: list[dict], address: str) -> list[str]:  # type: ignore[type-arg]
    return [each["metadata"]["name"] for each in cidrs if ip_address(address) in ip_network(each["spec"]["cidrs"][0])]
