"""An event: all that subscribed hear of it, in the order in which they did."""

from strandline.base.event import Event


def test_all_hear_of_it_in_the_order_of_their_subscription() -> None:
    heard: list[tuple[str, int]] = []
    event: Event[int] = Event()
    event(1)
    event.subscribe(lambda number: heard.append(("first", number)))
    event(2)
    event.subscribe(lambda number: heard.append(("second", number)))
    event(3)
    assert heard == [("first", 2), ("first", 3), ("second", 3)]
