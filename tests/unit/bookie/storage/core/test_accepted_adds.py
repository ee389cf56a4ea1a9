"""Which adds are taken in each state."""

import pytest

from bookie.storage.core.disk_space import AcceptedAdds


@pytest.mark.parametrize(
    ("state", "any_add", "urgent_add"),
    [
        (AcceptedAdds.ALL, True, True),
        (AcceptedAdds.PRIORITY, False, True),
        (AcceptedAdds.NONE, False, False),
    ],
)
def test_adds_are_taken_by_urgency(state: AcceptedAdds, any_add: bool, urgent_add: bool) -> None:
    assert state.takes(is_urgent=False) is any_add
    assert state.takes(is_urgent=True) is urgent_add
