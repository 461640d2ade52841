"""The options of this broker's controller: fixed values, and functions for those that may change later.

Left to others: the configuration in force (live.py), what the controller does (controller/).
"""

from collections.abc import Mapping

from ...controller.controller import ControllerOptions
from ...controller.failure_detector import Patience
from ...controller.planning.state import Strategy
from ...controller.requests.config_changes import Kind
from ...controller.requests.election_requests import ElectionPolicy
from ...controller.requests.topics import Defaults
from ...replication.profiles import ElectionOrder
from .broker import BrokerConfig
from .dynamic import KnownOptions
from .live import LiveConfig


def _elections(config: BrokerConfig) -> ElectionPolicy:
    controller, storage = config.controller, config.storage
    return ElectionPolicy(
        unclean=storage.unclean_leader_election_enable,
        strategy=Strategy(storage.unclean_recovery_strategy),
        recovery_timeout_s=controller.unclean_recovery_timeout_ms / 1000,
        balance=controller.auto_leader_rebalance_enable,
        balance_every_s=controller.leader_imbalance_check_interval_s,
        imbalance_percentage=controller.leader_imbalance_percentage,
    )


def controller_config(live: LiveConfig) -> ControllerOptions:
    """The options for the controller of the broker with this configuration."""
    config = live.started_with

    def defaults() -> Defaults:
        now = live.current
        return Defaults(
            now.controller.num_partitions,
            now.controller.default_replication_factor,
            elections=_elections(now),
            min_isr=now.storage.min_insync_replicas,
        )

    catalogue = KnownOptions(lambda: live.current.groups)

    def check_topic(name: str, settings: Mapping[str, str]) -> None:
        given = {setting: text.strip() for setting, text in settings.items()}  # as Kafka reads them
        catalogue.check(Kind.TOPIC, name, given, given)

    return ControllerOptions(
        config.broker_id,
        config.inter_broker_listener,
        defaults,
        Patience(answer_within_s=config.controller.socket_timeout_ms / 1000),
        session_timeout_s=config.zookeeper.session_timeout_ms / 1000,
        check_configs=check_topic,
        catalogue=catalogue,
        deletes_topics=config.controller.delete_topic_enable,
        isr_order=config.semantics.election_order is ElectionOrder.ISR,
    )
