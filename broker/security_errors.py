"""The errors of authentication and authorization, a part of the family in `broker/errors.py`.

AccessUnknown
RequestError
├── ResourceNotFound, DuplicateResource, UnacceptableCredential
├── UnsupportedSaslMechanism, IllegalSaslState, SaslAuthenticationFailed
├── SecurityDisabled
├── ThrottlingQuotaExceeded
└── AuthorizationFailed ── TopicAuthorizationFailed, GroupAuthorizationFailed,
                           ClusterAuthorizationFailed, TransactionalIdAuthorizationFailed
"""

from __future__ import annotations

from broker.errors import BrokerError, RequestError


class ResourceNotFound(RequestError):
    """What should be changed or described does not exist."""


class DuplicateResource(RequestError):
    """A request names the same thing twice."""


class UnacceptableCredential(RequestError):
    """A credential is weaker, or larger, than this broker takes."""


class AccessUnknown(BrokerError):
    """This broker is cut off from the metadata store for too long to know who may come in, or do
    what: another one does."""

    retriable = True


class SecurityDisabled(RequestError):
    """There are no access control lists on this broker."""


class ThrottlingQuotaExceeded(RequestError):
    """The client has done too much of that; it may come again later."""


class AuthorizationFailed(RequestError):
    """The client may not do that; whether what it names exists is not said."""


class TopicAuthorizationFailed(AuthorizationFailed):
    """Not to that topic."""


class GroupAuthorizationFailed(AuthorizationFailed):
    """Not to that group."""


class ClusterAuthorizationFailed(AuthorizationFailed):
    """Not to the cluster as a whole."""


class TransactionalIdAuthorizationFailed(AuthorizationFailed):
    """Not with that transactional id."""


class UnsupportedSaslMechanism(RequestError):
    """This broker does not have that SASL mechanism."""


class IllegalSaslState(RequestError):
    """It is not the time for that SASL request, or there is no SASL on this listener."""


class SaslAuthenticationFailed(RequestError):
    """The client is not who it says."""
