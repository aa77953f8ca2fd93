from hypothesis import given
from hypothesis import strategies as st

from bsprof.predict.search import LARGEST, largest_that


@given(
    limit=st.integers(0, 10_000),
    guess=st.integers(1, 20_000),
    smallest=st.integers(1, 50),
    cap=st.none() | st.integers(50, 12_000),
)
def test_the_border_is_found_from_any_guess(limit, guess, smallest, cap):
    asked = []

    def holds(size):
        asked.append(size)
        return size <= limit

    found = largest_that(holds, guess=guess, smallest=smallest, cap=cap)
    border = limit if cap is None else min(limit, cap)
    assert found == (border if border >= smallest else None)
    assert len(asked) == len(set(asked))
    assert all(smallest <= size <= (cap or LARGEST) for size in asked)


def test_a_good_guess_costs_few_questions():
    asked = []

    def holds(size):
        asked.append(size)
        return size <= 317

    assert largest_that(holds, guess=320) == 317
    assert len(asked) <= 6


@given(limit=st.integers(20, 10_000), guess=st.integers(1, 20_000))
def test_near_enough_is_enough_where_asking_is_dear(limit, guess):
    found = largest_that(lambda size: size <= limit, guess=guess, within=0.05)
    assert limit / 1.06 - 1 <= found <= limit


def test_what_always_holds_ends():
    assert largest_that(lambda size: size > 0, guess=1) == LARGEST
