"""States in safetensors files, and states carried to other arms."""

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from flashspec.errors import ContractError
from flashspec.selectors import Arms, carry, from_safetensors, get, names, to_safetensors
from flashspec.selectors.carried import TABLES
from flashspec.selectors.pool import repeated

NAMES = names()
OPTIONS = {"ema_tiers": {"draft": "head"}, "hf_heuristic": {"draft": "head"}}


def bits(state: Any) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Dtype, shape and bytes of each array."""
    values = {f.name: getattr(state, f.name) for f in attrs.fields(type(state)) if f.name != "arms"}
    return {name: (x.dtype.name, x.shape, x.tobytes()) for name, x in values.items()}


@pytest.mark.parametrize("name", NAMES)
def test_a_state_survives_safetensors_bit_for_bit(name: str, lab: Any, tmp_path: Path) -> None:
    """Every selector of the menu: the same dtypes, shapes and bytes, the same arms; batched states too."""
    pytest.importorskip("safetensors", reason="the hf extra is not installed")
    selector, arms, file = get(name, **OPTIONS.get(name, {})), lab.arms_of(), tmp_path / "state.safetensors"
    state, _ = lab.wander(selector, arms, 60)
    for given in (state, repeated(state, 3)):
        to_safetensors(selector, given, file)
        found = from_safetensors(get(name, **OPTIONS.get(name, {})), lab.arms_of(), file)
        assert bits(found) == bits(given)
        assert found.arms == arms


def test_a_file_of_other_arms_or_options_is_refused(lab: Any, tmp_path: Path) -> None:
    """The message names what differs and what to do."""
    pytest.importorskip("safetensors", reason="the hf extra is not installed")
    selector, arms, file = get("cht"), lab.arms_of(), tmp_path / "state.safetensors"
    to_safetensors(selector, lab.wander(selector, arms, 5)[0], file)
    with pytest.raises(ContractError, match=r"arms .*start again with selector\.init"):
        from_safetensors(selector, lab.arms_of(("head", "model", "ngram")), file)
    with pytest.raises(ContractError, match="has config"):
        from_safetensors(get("cht", share=0.01), arms, file)
    with pytest.raises(ContractError, match="has selector"):
        from_safetensors(get("hazard_ts"), arms, file)


@pytest.mark.parametrize("kept", [0, 7, 40, -1])
def test_a_file_that_was_cut_short_is_refused(kept: int, lab: Any, tmp_path: Path) -> None:
    """Whatever is missing: nothing is guessed."""
    pytest.importorskip("safetensors", reason="the hf extra is not installed")
    selector, arms, file = get("adaptive_ts"), lab.arms_of(), tmp_path / "state.safetensors"
    to_safetensors(selector, selector.init(arms), file)
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(ContractError, match=r"cut short\? start again"):
        from_safetensors(selector, arms, file)


def test_a_file_of_another_schema_or_without_one_is_refused(lab: Any, tmp_path: Path) -> None:
    """A later version's file, and the weights of a model."""
    safetensors = pytest.importorskip("safetensors.numpy", reason="the hf extra is not installed")
    selector, arms, file = get("ucb1"), lab.arms_of(), tmp_path / "state.safetensors"
    to_safetensors(selector, selector.init(arms), file)
    content = file.read_bytes()
    assert content.count(b'\\"schema\\": 1') == 1
    file.write_bytes(content.replace(b'\\"schema\\": 1', b'\\"schema\\": 7'))
    with pytest.raises(ContractError, match="schema 7; allowed here: 1; start again"):
        from_safetensors(selector, arms, file)
    file.write_bytes(safetensors.save({"weight": np.zeros(3)}))
    with pytest.raises(ContractError, match="holds no selector state"):
        from_safetensors(selector, arms, file)


@pytest.mark.parametrize("name", TABLES)
def test_a_state_carried_to_its_own_arms_is_itself(name: str, lab: Any) -> None:
    """Nothing is lost where nothing changes."""
    selector, arms = get(name), lab.arms_of()
    state, _ = lab.wander(selector, arms, 60)
    assert bits(carry(selector, state, lab.arms_of())) == bits(state)


@pytest.mark.parametrize("name", TABLES)
def test_a_draft_that_comes_starts_fresh_and_the_others_stay(name: str, lab: Any) -> None:
    """To fewer drafts and back, in another order: what stayed has its bits, what came those of ``init``."""
    selector, arms = get(name), lab.arms_of()
    state, _ = lab.wander(selector, arms, 60)
    few = carry(selector, state, lab.arms_of(("head", "ngram")))
    back = carry(selector, few, arms)
    fresh = selector.init(arms)
    for field in (f.name for f in attrs.fields(type(state)) if f.name != "arms"):
        was, now, new = (getattr(one, field) for one in (state, back, fresh))
        assert now.shape == was.shape
        if name == "cht" and field == "counts":
            model = arms.drafts.index("model")
            assert np.array_equal(np.delete(now, model, 2), np.delete(was, model, 2))
            assert np.array_equal(now[:, :, model], new[:, :, model])
            assert was[:, :, model].any()
        if name == "adaptive_ts":
            mine = arms.draft == arms.drafts.index("model")
            assert np.array_equal(now[..., ~mine], was[..., ~mine])
            assert np.array_equal(now[..., mine], new[..., mine])


def test_offsets_beyond_the_old_longest_start_fresh(lab: Any) -> None:
    """A longer length is added to a draft: what is known of the shorter ones stays, batches too."""
    selector, short = get("cht"), Arms.of({"a": (1, 2)}, {"a": 0})
    state = selector.init(short)
    for _ in range(3):
        state = selector.update(state, lab.seen(short, 2, 2))
    long = carry(selector, repeated(state, 5), Arms.of({"a": (1, 2, 4), "b": (3,)}, {"a": 0}))
    assert long.counts.shape == (5, 2, 3, 3, 5, 4)
    assert np.array_equal(long.counts[:, :, :, 1, :, :2], np.broadcast_to(state.counts[:, :, 1], (5, 2, 3, 5, 2)))
    assert not long.counts[..., 2:].any()
    assert not long.counts[:, :, :, 2].any()
    assert selector.select(carry(selector, state, long.arms), (1, 2), [0, 0, 0], np.ones(5), np.ones(5, bool))[0] > 0


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(TABLES)))
def test_states_whose_entries_depend_on_each_other_are_not_carried(name: str, lab: Any) -> None:
    """Weights that sum to 1 or a window of past arms: refused, with what to do."""
    selector = get(name, **OPTIONS.get(name, {}))
    with pytest.raises(ContractError, match=r"cannot be carried.*selector\.init\(arms\).*active"):
        carry(selector, selector.init(lab.arms_of()), lab.arms_of(("head", "ngram")))


def test_a_state_of_another_selector_is_not_carried(lab: Any) -> None:
    """Its tables would be read as something else."""
    with pytest.raises(ContractError, match="allowed for cht: Tables"):
        carry(get("cht"), get("ucb1").init(lab.arms_of()), lab.arms_of())


def test_a_draft_whose_tier_changes_keeps_its_counts_and_fades_as_its_new_tier_does(lab: Any) -> None:
    """Counts are carried; what is left of them after a token is that of the new arms."""
    selector, old = get("cht"), lab.arms_of()
    new = lab.arms_of(tiers={"ngram": 0, "model": 1, "head": 1})
    state = lab.wander(selector, old, 40)[0]
    found = carry(selector, state, new)
    assert np.array_equal(found.counts, state.counts)
    assert np.array_equal(found.rates, selector.init(new).rates)
    assert not np.array_equal(found.rates, state.rates)
