"""The user's loader function: what it may be called, and what is made of what it returns."""

import textwrap

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from bsprof.errors import UsageError, WorkloadError
from bsprof.workloads.loaders import LoaderSetting, UserLoader, parse_loader

# More workers than cores is what the tests want to see passed on, on any machine.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

FILE = """
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

DATA = [torch.full((3,), float(i)) for i in range(40)]
CALLS = []


def collate(samples):
    return {"x": torch.stack(samples)}


class Stream(IterableDataset):
    def __iter__(self):
        yield from DATA


class Own(DataLoader):
    pass


def dataset():
    CALLS.append("dataset")
    return DATA


def stream():
    return Stream()


def plain():
    CALLS.append("plain")
    return DataLoader(DATA, batch_size=5, num_workers=3, prefetch_factor=3, collate_fn=collate,
                      sampler=SequentialSampler(DATA), drop_last=True, timeout=9,
                      persistent_workers=True)


def streamed():
    return DataLoader(Stream(), batch_size=5, drop_last=True)


def by_batches():
    return DataLoader(DATA, batch_sampler=BatchSampler(SequentialSampler(DATA), 6, False))


def unbatched():
    return DataLoader(Stream(), batch_size=None)


def own():
    return Own(DATA, batch_size=7)


def named(batch_size, num_workers=6, prefetch_factor=5):
    CALLS.append((batch_size, num_workers, prefetch_factor))
    return DataLoader(DATA, batch_size=batch_size, num_workers=num_workers,
                      prefetch_factor=prefetch_factor)


def half(batch_size, **more):
    CALLS.append((batch_size, more))
    return DataLoader(DATA, batch_size=batch_size, collate_fn=collate)


def own_named(num_workers=1):
    return Own(DATA, batch_size=7, num_workers=num_workers)


def wants(path):
    return DATA


def nothing():
    CALLS.append("nothing")


def pair():
    return DATA, DATA


def broken():
    return 1 / 0
"""


@pytest.fixture
def loader_of(tmp_path):
    file = tmp_path / "data_file.py"
    file.write_text(FILE)
    return lambda name: UserLoader(f"{file}:{name}")


def setting(batch_size=8, workers=0, times=1):
    return LoaderSetting(batch_size=batch_size, num_workers=workers, prefetch_times=times)


def calls(loader):
    return loader._function.__globals__["CALLS"]


def test_a_loader_is_made_of_a_data_set(loader_of):
    user = loader_of("dataset")
    made = user.make(setting(8, 2, 2))
    loader = made.loader
    assert (loader.batch_size, loader.num_workers, loader.prefetch_factor) == (8, 2, 4)
    assert loader.persistent_workers
    assert isinstance(loader.sampler, torch.utils.data.RandomSampler)
    assert made.settable == {"batch_size", "num_workers", "prefetch_factor"}
    assert user.make(setting(4)).loader.prefetch_factor is None
    assert calls(user).count("dataset") == 1  # what is read once is read once
    assert user.own_workers is None


def test_a_stream_is_not_shuffled(loader_of):
    loader = loader_of("stream").make(setting(8)).loader
    assert [len(batch) for batch in loader] == [8] * 5
    assert next(iter(loader))[1, 0] == 1.0


def test_a_plain_loader_is_built_again_with_all_else_kept(loader_of):
    user = loader_of("plain")
    made = user.make(setting(8, 2))
    loader = made.loader
    assert (loader.batch_size, loader.num_workers, loader.prefetch_factor) == (8, 2, 3)
    assert (loader.drop_last, loader.timeout, loader.persistent_workers) == (True, 9, True)
    assert isinstance(loader.sampler, SequentialSampler)
    assert made.settable == {"batch_size", "num_workers", "prefetch_factor"}
    assert user.own_workers == 3
    assert user.make(setting(8, 2, 2)).loader.prefetch_factor == 6
    here = user.make(setting(16)).loader  # torch refuses a time-out and prefetch without workers
    assert [batch["x"].shape[0] for batch in here] == [16, 16]
    assert calls(user).count("plain") == 1


def test_a_loader_of_a_stream_is_built_again(loader_of):
    loader = loader_of("streamed").make(setting(16)).loader
    assert [len(batch) for batch in loader] == [16, 16]


def test_own_batches_are_kept(loader_of):
    made = loader_of("by_batches").make(setting(8))
    assert isinstance(made.loader.batch_sampler, BatchSampler)
    assert len(next(iter(made.loader))) == 6
    assert made.settable == {"num_workers", "prefetch_factor"}
    made = loader_of("unbatched").make(setting(8))
    assert next(iter(made.loader)).shape == (3,)
    assert made.settable == {"num_workers", "prefetch_factor"}


def test_a_subclass_is_left_as_it_is(loader_of):
    user = loader_of("own")
    made = user.make(setting(8, 2))
    assert type(made.loader) is not DataLoader
    assert (made.loader.batch_size, made.loader.num_workers) == (7, 0)
    assert made.settable == frozenset()
    made = loader_of("own_named").make(setting(8, 2))
    assert made.loader.num_workers == 2
    assert made.settable == {"num_workers"}


def test_what_the_signature_names_is_given_to_it(loader_of):
    user = loader_of("named")
    loader = user.make(setting(8, 2, 2)).loader
    assert calls(user)[-1] == (8, 2, 10)  # twice its own prefetch
    assert loader.num_workers == 2
    user.make(setting(4, 0))
    assert calls(user)[-1] == (4, 0, None)
    assert user.own_workers == 6


def test_what_it_does_not_name_is_set_afterwards(loader_of):
    user = loader_of("half")
    made = user.make(setting(8, 2))
    assert calls(user)[-1] == (8, {})
    assert (made.loader.batch_size, made.loader.num_workers) == (8, 2)
    assert made.settable == {"batch_size", "num_workers", "prefetch_factor"}
    assert user.make(setting(4)).loader.batch_size == 4


@pytest.mark.parametrize(
    ("name", "found"), [("nothing", "it returned nothing"), ("pair", "it returned a tuple")]
)
def test_another_return_is_refused(loader_of, name, found):
    with pytest.raises(WorkloadError, match="must return a torch DataLoader") as caught:
        loader_of(name).make(setting())
    assert caught.value.found == found


def test_the_users_mistakes_are_told(loader_of):
    with pytest.raises(WorkloadError, match="cannot make the loader") as caught:
        loader_of("broken").make(setting())
    assert "data_file.py:" in caught.value.found
    with pytest.raises(WorkloadError, match="cannot call the loader") as caught:
        loader_of("wants")
    assert caught.value.found == "it needs path"
    with pytest.raises(WorkloadError, match="no function 'none' in") as caught:
        loader_of("none")
    assert "dataset" in caught.value.found
    assert "DataLoader" in caught.value.next_step


def test_a_file_that_cannot_be_imported_is_the_users_own_error(tmp_path):
    file = tmp_path / "typo_in_data.py"
    file.write_text(textwrap.dedent("import torch\n\ndef make(:\n    pass\n"))
    with pytest.raises(WorkloadError, match="cannot import") as caught:
        UserLoader(f"{file}:make")
    assert "typo_in_data.py:3" in caught.value.found


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("none.py:make", WorkloadError, "no file none.py"),
        ("mlp", UsageError, "data.py:train_loader"),
        ("gpt-tiny", UsageError, "data.py:train_loader"),
        ("data.py", UsageError, "data.py:train_loader"),
        ("none.py:1x", UsageError, "data.py:train_loader"),
        ("timm:resnet18", UsageError, "data.py:train_loader"),
        ("nonsense", UsageError, "data.py:train_loader"),
    ],
)
def test_names_that_cannot_be(name, error, words):
    with pytest.raises(error) as caught:
        parse_loader(name)
    assert words in str(caught.value)


def test_a_module_may_be_named():
    assert parse_loader("package.data:make").kind == "module"
