"""How a connection begins. ApiVersions 0-4: which requests the broker understands, in which versions.

v1 throttle time · v3 flexible, the client's name, features · v4 as v3
SaslHandshake 0-1: by which mechanism the client will say who it is · v1 for SaslAuthenticate
"""

from ..schema import Bool, Int16, Int32, Int64, String, message, since, struct, tagged


@message(key=18, versions=(0, 4), flexible=3)
class ApiVersionsRequest:
    """The first request of every connection."""

    client_software_name: String = since(3, default="")
    client_software_version: String = since(3, default="")


@struct
class ApiVersion:
    """The versions of one API, both ends included."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


@struct
class SupportedFeatureKey:
    """A feature the broker could run with."""

    name: String
    min_version: Int16
    max_version: Int16


@struct
class FinalizedFeatureKey:
    """A feature the cluster runs with."""

    name: String
    max_version_level: Int16
    min_version_level: Int16


@message(key=18, versions=(0, 4), flexible=3)
class ApiVersionsResponse:
    """A client takes the highest version that both sides know."""

    error_code: Int16 = 0
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = since(1, default=0)
    supported_features: list[SupportedFeatureKey] = tagged(0, since=3, default=[])
    finalized_features_epoch: Int64 = tagged(1, since=3, default=-1)
    finalized_features: list[FinalizedFeatureKey] = tagged(2, since=3, default=[])
    zk_migration_ready: Bool = tagged(3, since=3, default=False)


@message(key=17, versions=(0, 1), flexible=2)
class SaslHandshakeRequest:
    """The mechanism that the client wants."""

    mechanism: String


@message(key=17, versions=(0, 1), flexible=2)
class SaslHandshakeResponse:
    """The mechanisms that there are."""

    error_code: Int16 = 0
    mechanisms: list[String]
