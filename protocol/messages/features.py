"""UpdateFeatures 0-1: the features that brokers agree on.

v1 kinds of upgrade in place of a permission to downgrade, and a request that only asks whether it can be done
"""

from ..schema import Bool, Int8, Int16, Int32, String, message, since, struct

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


@struct
class FeatureUpdateKey:
    """The version that a feature is to have; a downgrade below 1 removes it."""

    feature: String
    max_version_level: Int16
    allow_downgrade: Bool = since(0, default=False, until=0)
    upgrade_type: Int8 = since(1, default=UPGRADE)


@message(key=57, versions=(0, 1), flexible=0)
class UpdateFeaturesRequest:
    """All features are judged, each by itself."""

    timeout_ms: Int32 = 60_000
    feature_updates: list[FeatureUpdateKey] = since(0, default=[])
    validate_only: Bool = since(1, default=False)


@struct
class UpdatableFeatureResult:
    """What became of one feature."""

    feature: String
    error_code: Int16 = 0
    error_message: String | None = None


@message(key=57, versions=(0, 1), flexible=0)
class UpdateFeaturesResponse:
    """One result for each feature that was named."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    results: list[UpdatableFeatureResult] = since(0, default=[])
