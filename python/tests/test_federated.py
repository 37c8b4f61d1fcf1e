"""The vault of client updates. The randomness is secret and has no seed; each test states how often chance alone makes it fail."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import sordino
from sordino._sordino import UpdateVault

DELTA = 1e-5


def vault(dimension=4, **settings):
    defaults = dict(clients=4, sample_rate=1.0, rounds=1, clipping_norm=1.0, noise_multiplier=0.05, delta=DELTA)
    return UpdateVault(dimension, **{**defaults, **settings})


def facts(vault):
    return json.loads(vault.facts)


def unit(dimension=4, axis=0, length=1.0):
    vector = np.zeros(dimension, dtype=np.float32)
    vector[axis] = length
    return vector


def no_replies(chosen):
    return [None] * len(chosen)


def charges(path):
    return sum('"charge"' in line for line in path.read_text().splitlines())


def test_the_release_is_the_sum_of_clipped_updates():
    """Ten standard deviations of the noise: 1e-23."""
    updates = [unit(axis=0), unit(axis=1, length=0.5), unit(axis=2, length=-40.0), None]
    total, noise_std = vault().round(lambda chosen: [updates[number] for number in chosen])
    assert total.dtype == np.float32
    assert noise_std == pytest.approx(0.05, rel=1e-3) and noise_std >= 0.05
    np.testing.assert_allclose(total, [1.0, 0.5, -1.0, 0.0], atol=10 * noise_std)


def test_clients_are_asked_in_ascending_order_and_a_rate_of_one_asks_all():
    seen = []
    vault(clients=7).round(lambda chosen: seen.extend(chosen) or no_replies(chosen))
    assert seen == list(range(7))


@pytest.mark.parametrize(
    "update",
    [
        unit(length=math.nan),
        unit(length=math.inf),
        np.full(4, -math.inf, dtype=np.float32),
        unit(5, length=0.9),
        unit(3, length=0.9),
        unit(length=0.9).reshape(2, 2),
        unit(length=0.9).astype(np.float64),
        [0.9, 0.0, 0.0, 0.0],
        "0.9",
        None,
    ],
    ids=["nan", "inf", "all infinite", "long", "short", "axes", "float64", "list", "text", "none"],
)
def test_malformed_updates_add_nothing(update):
    """Of 0.9 times 4 clients, nothing arrives. Ten standard deviations of the noise: 1e-23."""
    total, noise_std = vault().round(lambda chosen: [update] * len(chosen))
    assert np.abs(total).max() < 10 * noise_std


@pytest.mark.parametrize("length", [1.0001, 7.0, 1e10, 3e38])
def test_no_update_moves_the_sum_by_more_than_the_clipping_norm(length):
    """The norm of the noise in four coordinates exceeds ten standard deviations with probability 1e-20."""
    for update in (unit(length=length), np.full(4, length, dtype=np.float32)):
        total, noise_std = vault().round(lambda chosen: [update] + [None] * 3)
        norm = np.linalg.norm(total.astype(np.float64))
        assert 1 - 10 * noise_std < norm < 1 + 10 * noise_std


def test_strided_arrays_are_read_in_their_order():
    update = np.array([0.1, 9.0, 0.2, 9.0, 0.3, 9.0, 0.4, 9.0], dtype=np.float32)[::2]
    total, noise_std = vault(clients=1, noise_multiplier=0.01).round(lambda chosen: [update])
    np.testing.assert_allclose(total, [0.1, 0.2, 0.3, 0.4], atol=10 * noise_std)


def test_noise_has_the_planned_deviation_whoever_replies():
    """A variance of 40,000 numbers is off by more than 5 % (seven standard deviations) with probability 3e-12."""
    dimension, deviations = 40_000, []
    for replies in (8, 4, 0):
        all_clients = vault(dimension, clients=8, noise_multiplier=2.0, clipping_norm=3.0)
        update = unit(dimension, length=3.0)
        total, noise_std = all_clients.round(lambda chosen: [update] * replies + [None] * (8 - replies))
        assert np.var(total[1:].astype(np.float64)) == pytest.approx(noise_std**2, rel=0.05)
        # Replies are 3 long; the noise has a standard deviation of 6.
        assert abs(total[0] - 3.0 * replies) < 10 * noise_std
        deviations.append(noise_std)
    assert deviations == [deviations[0]] * 3 and deviations[0] == pytest.approx(6.0, rel=1e-3)


def test_sampling_is_poisson_at_the_stated_rate():
    """200 draws of 400 clients at rate 1/4. The mean is off by six standard deviations with probability 2e-9; the variance is below half or above
    1.7 times that of independent coins with probability 6e-8 (Chernoff). A fixed number of clients would have variance 0."""
    plan, sizes, taken = vault(clients=400, sample_rate=0.25, rounds=200), [], np.zeros(400)

    def ask(chosen):
        sizes.append(len(chosen))
        taken[chosen] += 1
        return no_replies(chosen)

    while plan.round(ask) is not None:
        pass
    assert len(sizes) == 200
    assert abs(sum(sizes) - 20_000) < 6 * math.sqrt(200 * 75)
    assert 0.5 < np.var(sizes, ddof=1) / 75 < 1.7
    # Each client: 50 of 200 on average, standard deviation 6.1. One of 400 outside 50 +- 40: 1e-8.
    assert taken.min() > 10 and taken.max() < 90


def test_the_price_is_that_of_poisson_sampling():
    plan = vault(clients=100, sample_rate=0.1, rounds=30, noise_multiplier=1.3)
    price = sordino.epsilon(noise_multiplier=1.3, sample_rate=0.1, steps=30, delta=DELTA)
    assert facts(plan)["epsilon"] == price.epsilon
    assert "Poisson sampling at rate 0.1, fresh at each of 30 steps" in plan.statement
    # Without amplification by sampling, the price is several times higher.
    assert sordino.epsilon(noise_multiplier=1.3, sample_rate=1.0, steps=30, delta=DELTA).epsilon > 3 * price.epsilon


def test_an_empty_sample_is_charged_and_released_with_noise(tmp_path):
    plan = vault(sample_rate=1e-9, ledger=tmp_path / "ledger")
    total, noise_std = plan.round(no_replies)
    assert 0 < np.abs(total).max() < 10 * noise_std
    assert charges(tmp_path / "ledger") == 1


def test_seeds_of_other_generators_change_neither_samples_nor_noise():
    """64 coins agree by chance with probability 5e-20."""
    drawn, released = [], []
    for _ in range(2):
        np.random.seed(7)
        random.seed(7)
        total, _ = vault(clients=64, sample_rate=0.5).round(lambda chosen: drawn.append(chosen) or no_replies(chosen))
        released.append(total)
    assert drawn[0] != drawn[1]
    assert (released[0] != released[1]).all()


def test_the_cost_of_rounds_is_composed(tmp_path):
    plan = vault(sample_rate=0.5, rounds=3, noise_multiplier=1.0, ledger=tmp_path / "ledger")
    price = {steps: sordino.epsilon(noise_multiplier=1.0, sample_rate=0.5, steps=steps, delta=DELTA).epsilon for steps in (1, 2, 3)}
    for taken in (1, 2, 3):
        plan.round(no_replies)
        assert facts(plan)["epsilon_so_far"] == price[taken]
        # The guarantee is that of the whole plan, whenever the run stops.
        assert facts(plan)["epsilon"] == price[3]
    assert price[1] < price[2] < price[3]
    assert plan.rounds_left == 0 and plan.round(no_replies) is None
    assert "unfinished" in plan.statement
    plan.close()
    assert plan.statement.startswith("This federated model satisfies (")
    assert "one client's whole contribution" in plan.statement
    assert facts(plan)["finished"] and facts(plan)["rounds"] == 3


def test_a_round_is_charged_before_clients_are_asked(tmp_path):
    plan, seen = vault(rounds=2, ledger=tmp_path / "ledger"), []
    for _ in range(2):
        plan.round(lambda chosen: seen.append(charges(tmp_path / "ledger")) or no_replies(chosen))
    assert seen == [1, 2]


def test_a_round_that_fails_stays_charged_and_the_next_one_works(tmp_path):
    plan = vault(rounds=3, ledger=tmp_path / "ledger")

    def broken(chosen):
        raise ConnectionError("no network")

    with pytest.raises(ConnectionError, match="no network"):
        plan.round(broken)
    with pytest.raises(ValueError, match="4 items, each an update or None, got 1"):
        plan.round(lambda chosen: [None])
    assert charges(tmp_path / "ledger") == 2 and plan.rounds_left == 1
    assert plan.round(no_replies) is not None and plan.rounds_left == 0


def test_a_round_whose_process_is_killed_stays_charged(tmp_path):
    settings = dict(rounds=3, noise_multiplier=1.0, sample_rate=0.5, ledger=tmp_path / "ledger")
    program = f"""
        import os
        from pathlib import PosixPath
        from sordino._sordino import UpdateVault
        plan = UpdateVault(4, clients=4, clipping_norm=1.0, delta={DELTA}, **{settings!r})
        plan.round(lambda chosen: [None] * len(chosen))
        plan.round(lambda chosen: os.kill(os.getpid(), 9))
    """
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], timeout=60)
    assert killed.returncode == -9
    with pytest.raises(ValueError, match="cannot be created"):
        vault(**settings)
    plan = vault(**settings, resume=True)
    assert facts(plan)["rounds"] == 2 and plan.rounds_left == 1
    assert facts(plan)["epsilon_so_far"] == sordino.epsilon(noise_multiplier=1.0, sample_rate=0.5, steps=2, delta=DELTA).epsilon
    assert plan.round(no_replies) is not None and plan.round(no_replies) is None


def test_a_run_is_resumed_under_its_own_terms_only(tmp_path):
    vault(rounds=3, ledger=tmp_path / "ledger").round(no_replies)
    for changed in (dict(clipping_norm=2.0), dict(clients=5), dict(noise_multiplier=0.06), dict(rounds=4)):
        with pytest.raises(ValueError, match="other terms"):
            vault(**{"rounds": 3, "ledger": tmp_path / "ledger", "resume": True, **changed})
    with pytest.raises(ValueError, match="ledger is not given"):
        vault(resume=True)


def test_a_ledger_in_memory_charges_the_whole_plan():
    plan = vault(rounds=5, noise_multiplier=1.0)
    assert facts(plan)["rounds"] == 5
    assert "counts as spent" in plan.statement


def test_a_vault_is_not_entered_twice():
    plan, problems = vault(rounds=2), []

    def again(chosen):
        for use in (lambda: plan.round(no_replies), lambda: plan.statement, plan.close):
            with pytest.raises(RuntimeError, match="another round is in progress"):
                use()
            problems.append(use)
        return no_replies(chosen)

    assert plan.round(again) is not None and len(problems) == 3


@pytest.mark.parametrize(
    "settings, message",
    [
        (dict(clipping_norm=-1.0), "clipping_norm must be"),
        (dict(clipping_norm=math.nan), "clipping_norm must be"),
        (dict(sample_rate=1.5), "sample_rate must be"),
        (dict(sample_rate=0.0), "sample_rate must be"),
        (dict(noise_multiplier=0.0), "noise_multiplier must be"),
        (dict(delta=1.0), "delta must be"),
        (dict(rounds=0), "rounds must be"),
        (dict(clients=0), "at least one client"),
        (dict(dimension=0), "at least one client and one parameter"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(settings, message):
    with pytest.raises(ValueError, match=message):
        vault(**settings)


def test_a_plan_above_the_budget_is_refused_before_a_ledger_exists(tmp_path):
    with pytest.raises(sordino.BudgetError, match="the budget is 1"):
        vault(noise_multiplier=1.0, target_epsilon=1.0, ledger=tmp_path / "ledger")
    assert not os.path.exists(tmp_path / "ledger")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_process_takes_rounds_after_a_fork():
    """The child does not have the threads of its parent."""
    vault().round(no_replies)
    child = os.fork()
    if child == 0:
        # The alarm ends a child that waits for threads.
        signal.alarm(30)
        os._exit(0 if vault(10_000).round(no_replies) is not None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
