"""UpdateFeatures 0-1: answered as by Kafka 3.9 with ZooKeeper, where brokers support no features.

There a cluster has none, whatever brokers could do with a quorum of their own, and every update is refused,
each for its reason. So there is nothing that only the controller could know, and every broker answers.
v1 kinds of upgrade; `validate_only` makes no difference
Left to others: which versions brokers speak among themselves (config/files.py).
Sources: KafkaApis.handleUpdateFeatures and KafkaController.validateFeatureUpdate of Kafka 3.9.
"""

from typing import TYPE_CHECKING

from ...protocol.apis import Api
from ...protocol.errors import ApiError, ErrorCode
from ...protocol.messages.features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ..network.exchange import Exchange, HandlerEntry

if TYPE_CHECKING:
    from ..context import BrokerContext

KINDS = (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE)


def update(
    broker: "BrokerContext", exchange: Exchange, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """Each feature by itself; one that is named twice has one result, for the first."""
    first: dict[str, FeatureUpdateKey] = {}
    for each in request.feature_updates:
        first.setdefault(each.feature, each)
    return UpdateFeaturesResponse(
        results=[
            UpdatableFeatureResult(
                feature=name,
                error_code=ErrorCode.INVALID_REQUEST,
                error_message=_why_not(each, _kind(each, exchange.version)),
            )
            for name, each in first.items()
        ]
    )


def _kind(asked: FeatureUpdateKey, version: int) -> int:
    """The kind of upgrade, which the first version says otherwise."""
    if version > 0:
        return asked.upgrade_type
    return SAFE_DOWNGRADE if asked.allow_downgrade else UPGRADE


def _why_not(asked: FeatureUpdateKey, kind: int) -> str:
    """Kafka's words, where no feature is supported and none is finalized."""
    if not asked.feature:
        return "Feature name can not be empty."
    if kind not in KINDS:
        return "Received unknown upgrade type."
    if asked.max_version_level < 1:
        if kind != UPGRADE:
            return "Can not delete non-existing finalized feature."
        return (
            f"Can not provide versionLevel: {asked.max_version_level} less than 1 without setting the SAFE "
            "downgradeType in the request."
        )
    return "Could not apply finalized feature update because the provided feature is not supported."


def refuse(request: UpdateFeaturesRequest, error: ApiError) -> UpdateFeaturesResponse:
    """The error alone, as Kafka does."""
    return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)


HANDLERS = {Api.UPDATE_FEATURES: HandlerEntry(update, refuse)}
