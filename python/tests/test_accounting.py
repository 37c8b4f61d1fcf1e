"""Accounting: comparison with published values and with dp_accounting, and invalid input."""

import copy
import json
import math
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
import sordino

SETTING = dict(noise_multiplier=1.1, sample_rate=0.004, steps=15_000, delta=1e-5)
ACCOUNTANTS = ["pld", "rdp", "gdp-clt", "zcdp", "tcdp", "first-participation"]


# Noise multiplier, sample rate, steps, delta, the exact epsilon, and the precision with which its source states it.
EXACT = [
    # jax_privacy 2.0.0, tests/accounting/analysis_test.py.
    (4.0, 1024 / 50_000, 10_000, 1e-5, 2.09245, 3e-5),
    # tensorflow_privacy, compute_dp_sgd_privacy_test.py.
    (0.35, 0.01, 120, 1e-5, 18.6977407, 1e-4),
    # Settings of Opacus 1.6.0, examples/mnist_README.md, computed by dp_accounting 0.6.0.
    (1.1, 0.004, 15_000, 1e-5, 2.2954679, 1e-3),
    (0.7, 0.004, 11_250, 1e-5, 5.4312227, 1e-3),
    (1.5, 0.04, 2249, 1e-5, 6.7687874, 1e-3),
]


@pytest.mark.parametrize("z, rate, steps, delta, exact, tolerance", EXACT)
def test_pld_bounds_contain_published_values(z, rate, steps, delta, exact, tolerance):
    price = sordino.epsilon(noise_multiplier=z, sample_rate=rate, steps=steps, delta=delta)
    assert price.epsilon_lower - tolerance <= exact <= price.epsilon + tolerance
    assert price.epsilon - price.epsilon_lower < 0.002 * price.epsilon
    assert price.proved and price.accountant == "pld" and price.steps == steps and price.noise_multiplier == z
    assert price.relation == "add/remove with public N (zero-out)"


@pytest.mark.parametrize(
    "z, rate, steps, delta, published",
    # dp_accounting 0.6.0 and tensorflow_privacy, with their grids of orders.
    [(1.1, 0.004, 15_000, 1e-5, 2.50287093), (4.0, 1024 / 50_000, 10_000, 1e-5, 2.274615), (0.35, 0.01, 120, 1e-5, 22.6248601)],
)
def test_rdp_is_at_most_slightly_below_published_values(z, rate, steps, delta, published):
    price = sordino.epsilon(noise_multiplier=z, sample_rate=rate, steps=steps, delta=delta, accountant="rdp")
    assert 0.98 * published <= price.epsilon <= published * (1 + 1e-5)
    assert price.proved and price.epsilon_lower is None


def test_epsilon_agrees_with_dp_accounting():
    dp_accounting = pytest.importorskip("dp_accounting")
    pld = pytest.importorskip("dp_accounting.pld")
    for z, rate, steps in [(0.8, 0.02, 300), (2.0, 0.1, 1000), (1.0, 0.001, 5000)]:
        event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(z))
        theirs = pld.PLDAccountant().compose(event, steps).get_epsilon(1e-5)
        ours = sordino.epsilon(noise_multiplier=z, sample_rate=rate, steps=steps, delta=1e-5)
        # The epsilon of dp_accounting is rounded up on a grid of 1e-4.
        assert ours.epsilon_lower <= theirs and ours.epsilon <= 1.002 * theirs


def test_fixed_size_batches_use_the_replace_one_relation():
    # dp_accounting 0.6.0: multiplier 2 relative to the replace-one sensitivity, which is twice that of removal.
    setting = dict(noise_multiplier=4.0, sampling="fixed-size", batch_size=600, population=60_000, steps=1000, delta=1e-5)
    price = sordino.epsilon(accountant="rdp", **setting)
    assert price.epsilon == pytest.approx(1.445298242, rel=1e-3)
    assert price.relation == "replace-one"
    with pytest.raises(ValueError, match='accountant="rdp"'):
        sordino.epsilon(**setting)


def test_epsilon_of_a_group_agrees_with_dp_accounting():
    # dp_accounting 0.6.0, mixtures of Gaussians: 1.4398 to 1.44482.
    price = sordino.epsilon(noise_multiplier=2.0, sample_rate=0.01, steps=500, delta=1e-5, group_size=3)
    assert price.epsilon_lower <= 1.44482 and price.epsilon >= 1.4398 and price.group_size == 3
    assert "any 3 records together" in str(price)
    with pytest.raises(ValueError, match="only the accountant pld prices groups"):
        sordino.epsilon(group_size=3, accountant="rdp", **SETTING)


def test_all_accountants_but_gdp_clt_are_proved():
    full = dict(noise_multiplier=30.0, sampling="full-batch", steps=10, delta=1e-5)
    stateful = dict(noise_multiplier=30.0, sampling="stateful", sample_rate=0.02, later_shift=2.0, steps=50, delta=1e-5)
    for accountant in ACCOUNTANTS:
        price = sordino.epsilon(accountant=accountant, **(stateful if accountant == "first-participation" else full))
        assert price.proved == (accountant != "gdp-clt"), accountant
        assert price.accountant == accountant
    approximate = sordino.epsilon(accountant="gdp-clt", **SETTING)
    assert "proved=False" in repr(approximate) and "NOT A BOUND" in str(approximate) and 'accountant="pld"' in str(approximate)
    assert approximate.epsilon_lower is None


def test_printed_epsilons_are_rounded_up():
    for z in np.linspace(0.7, 3.0, 7):
        price = sordino.epsilon(noise_multiplier=z, sample_rate=0.02, steps=777, delta=1e-5)
        stated = float(str(price).split("(")[1].split(",")[0])
        assert stated >= price.epsilon
        assert f"epsilon={price.epsilon!r}," in repr(price)


def test_noise_multiplier_meets_its_budget_and_uses_nearly_all_of_it():
    for accountant in ["pld", "rdp"]:
        price = sordino.noise_multiplier(target_epsilon=1.0, sample_rate=0.1, steps=512, delta=1e-6, accountant=accountant)
        assert 0.998 < price.epsilon <= 1.0 and price.proved
        again = sordino.epsilon(
            noise_multiplier=price.noise_multiplier, sample_rate=0.1, steps=512, delta=1e-6, accountant=accountant
        )
        assert again == price
        if accountant == "pld":
            assert price.noise_multiplier == pytest.approx(9.66, abs=0.02)


def test_noise_multiplier_supports_other_kinds_of_sampling():
    full = sordino.noise_multiplier(target_epsilon=1.0, sampling="full-batch", steps=1, delta=1e-6, accountant="rdp")
    # dp_accounting 0.6.0, rdp_privacy_accountant_test.py.
    assert full.noise_multiplier == pytest.approx(4.530877117, rel=1e-3)
    fixed = dict(sampling="fixed-size", batch_size=600, population=60_000, steps=1000, delta=1e-5, accountant="rdp")
    assert sordino.noise_multiplier(target_epsilon=1.0, **fixed).relation == "replace-one"


def test_the_command_computes_the_same_numbers():
    arguments = "--noise-multiplier 1.1 --sample-rate 0.004 --steps 15000 --delta 1e-5 --json".split()
    run = subprocess.run([sys.executable, "-m", "sordino", "epsilon", *arguments], capture_output=True, text=True, check=True)
    printed = json.loads(run.stdout)
    price = sordino.epsilon(**SETTING)
    for key in ["epsilon", "epsilon_lower", "delta", "accountant", "relation", "group_size", "proved"]:
        assert getattr(price, key) == printed[key], key


# Arrays


def test_arrays_give_the_same_results_as_single_numbers():
    multipliers = np.array([0.8, 1.0, 1.2])
    prices = sordino.epsilon(noise_multiplier=multipliers, sample_rate=0.01, steps=1000, delta=1e-5)
    single = [sordino.epsilon(noise_multiplier=z, sample_rate=0.01, steps=1000, delta=1e-5) for z in multipliers]
    np.testing.assert_array_equal(prices.epsilon, [price.epsilon for price in single])
    np.testing.assert_array_equal(prices.epsilon_lower, [price.epsilon_lower for price in single])
    np.testing.assert_array_equal(prices.noise_multiplier, multipliers)
    np.testing.assert_array_equal(prices.steps, [1000] * 3)
    np.testing.assert_array_equal(prices.delta, [1e-5] * 3)
    assert prices.proved is True
    with pytest.raises(TypeError, match="several plans"):
        float(prices)


@pytest.mark.parametrize("name", ["sample_rate", "steps", "delta"])
def test_other_parameters_can_be_arrays(name):
    setting = dict(SETTING, **{name: [SETTING[name], SETTING[name] / 2]})
    prices = sordino.epsilon(**setting)
    assert prices.epsilon[0] == sordino.epsilon(**SETTING).epsilon
    assert sordino.epsilon(**dict(setting, noise_multiplier=np.array([1.1, 1.1]))) == prices
    with pytest.raises(ValueError, match=f"noise_multiplier and {name} must have the same length, got 3 and 2"):
        sordino.epsilon(**dict(setting, noise_multiplier=np.ones(3)))


def test_arrays_of_any_type_and_layout_are_read():
    expected = sordino.epsilon(**dict(SETTING, noise_multiplier=[1.0, 2.0])).epsilon
    strided = np.array([1.0, 9.0, 2.0, 9.0])[::2]
    backwards = np.array([2.0, 1.0])[::-1]
    kinds = [(1, 2), np.array([1, 2]), np.array([1, 2], "uint8"), np.array([1, 2], "float32"), np.array([1, 2], ">f8"), strided, backwards]
    for value in kinds:
        np.testing.assert_array_equal(sordino.epsilon(**dict(SETTING, noise_multiplier=value)).epsilon, expected)
    one = sordino.epsilon(**dict(SETTING, noise_multiplier=np.float32(1)))
    assert one.epsilon == expected[0] and isinstance(one.epsilon, float)
    assert sordino.epsilon(**dict(SETTING, noise_multiplier=np.array(1.0))) == one
    assert sordino.epsilon(**dict(SETTING, noise_multiplier=[1.0])).epsilon.shape == (1,)


def test_a_series_of_pandas_is_an_array():
    pandas = pytest.importorskip("pandas")
    assert sordino.epsilon(**dict(SETTING, noise_multiplier=pandas.Series([1.0]))).epsilon.shape == (1,)


def test_noise_multipliers_for_many_budgets():
    prices = sordino.noise_multiplier(target_epsilon=[0.5, 1.0, 2.0], sample_rate=0.01, steps=1000, delta=1e-5)
    assert np.all(np.diff(prices.noise_multiplier) < 0) and np.all(prices.epsilon <= [0.5, 1.0, 2.0])


# Plans


def dp_sgd(z=1.0, rate=0.01, steps=1000):
    return sordino.Step(noise_multiplier=z, sample_rate=rate, steps=steps)


KINDS = [
    dict(noise_multiplier=1.5, sample_rate=0.01, steps=10),
    dict(noise_multiplier=[1.5, 6.0], sample_rate=0.01, max_batch_size=700, population=60_000, steps=1),
    dict(sampling="fixed-size", noise_multiplier=2.0, batch_size=600, population=60_000, steps=3),
    dict(sampling="full-batch", noise_multiplier=7.0, steps=2),
    dict(sampling="rotating", noise_multiplier=1.5, sample_rate=0.08, groups=9, steps=150),
    dict(sampling="stateful", noise_multiplier=2.0, sample_rate=0.02, later_shift=3.0, steps=20),
]


@pytest.mark.parametrize("keys", KINDS)
def test_every_kind_of_step_can_be_copied_and_stored(keys):
    step = sordino.Step(**keys)
    for name, value in keys.items():
        assert getattr(step, name) == value
    assert step.sampling == keys.get("sampling", "poisson")
    assert eval(repr(step), {"Step": sordino.Step}) == step
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(step, protocol)) == step
    plan = sordino.Plan([step])
    assert json.loads(plan.to_json()) == [keys]
    assert sordino.Plan.from_json(plan.to_json()) == plan == copy.deepcopy(plan) == pickle.loads(pickle.dumps(plan))
    assert step != dp_sgd(z=1.25) and plan != sordino.Plan()


def test_plans_compose():
    first, second = sordino.Plan([dp_sgd(2.0)]), sordino.Plan([dp_sgd(1.0), dp_sgd(3.0)])
    both = first.compose(second)
    assert both == first + second == sordino.Plan([*first, *second])
    assert len(both) == 3 and both.steps == 3000 and both[-1] == dp_sgd(3.0)
    with pytest.raises(IndexError):
        both[3]
    parts = first.epsilon(delta=1e-5).epsilon, second.epsilon(delta=1e-5).epsilon
    assert max(parts) < both.epsilon(delta=1e-5).epsilon < sum(parts)
    # Epsilon does not depend on the order of the steps.
    assert (second + first).epsilon(delta=1e-5).epsilon == pytest.approx(both.epsilon(delta=1e-5).epsilon, rel=2e-3)
    assert 3 * first == first * 3 == sordino.Plan([dp_sgd(2.0, steps=3000)])


def test_repeated_rotating_plans_cost_as_much_as_separate_runs():
    run = sordino.Plan([sordino.Step(sampling="rotating", noise_multiplier=2.0, sample_rate=0.1, groups=7, steps=29)])
    assert (run * 2).epsilon(delta=1e-5).epsilon == (run + run).epsilon(delta=1e-5).epsilon


def test_an_empty_plan_costs_nothing():
    assert sordino.Plan().epsilon(delta=1e-5).epsilon == 0 and len(sordino.Plan([])) == 0


def test_plan_epsilon_equals_the_function_epsilon():
    plan = sordino.Plan([dp_sgd(1.1, 0.004, 15_000)])
    assert plan.epsilon(delta=1e-5) == plan.epsilon(1e-5) == sordino.epsilon(**SETTING)
    assert plan.epsilon([1e-5, 1e-6]).epsilon[0] == sordino.epsilon(**SETTING).epsilon
    assert plan.relation == sordino.epsilon(**SETTING).relation


def test_a_schedule_of_multipliers_is_a_plan():
    schedule = np.linspace(2.0, 1.0, 500)
    plan = sordino.Plan.from_multipliers(schedule, sample_rate=0.02)
    assert len(plan) == 500 and [step.noise_multiplier for step in plan] == list(schedule)
    assert "497 more" in repr(plan)
    ends = [sordino.epsilon(noise_multiplier=z, sample_rate=0.02, steps=500, delta=1e-5).epsilon for z in (2.0, 1.0)]
    assert ends[0] < plan.epsilon(1e-5).epsilon < ends[1]
    same = sordino.Plan.from_multipliers(np.full(500, 1.5), sample_rate=0.02).epsilon(1e-5)
    assert same.epsilon == pytest.approx(sordino.epsilon(noise_multiplier=1.5, sample_rate=0.02, steps=500, delta=1e-5).epsilon, rel=2e-3)
    assert same.noise_multiplier is None


def test_delta_and_profile_are_upper_bounds():
    # dp_accounting 0.6.0, pld_privacy_accountant_test.py.
    plan = sordino.Plan([dp_sgd(0.5, 0.2, 3)])
    for delta in [plan.delta(1.0), plan.profile(1.0), plan.delta([1.0])[0], plan.profile(np.array([0.5, 1.0]))[1]]:
        assert 0.15593 <= delta < 0.158
    # prv_accountant, tests/test_accountant.py.
    phases = [sordino.Step(sampling="full-batch", noise_multiplier=z, steps=50) for z in (10.0, 5.0)]
    assert sordino.Plan(phases).delta(4.0) == pytest.approx(0.016455672864108956, rel=1e-6)
    epsilons = np.array([2.0, 0.0, 1.0])
    np.testing.assert_allclose(plan.profile(epsilons), plan.delta(epsilons), rtol=0.02)


def test_the_trade_off_matches_a_gaussian():
    # dp_accounting 0.6.0, pld_privacy_accountant_test.py: power 0.38914 at level 0.1, mu = 1.
    plan = sordino.Plan([sordino.Step(sampling="full-batch", noise_multiplier=math.sqrt(3), steps=3)])
    assert 1 - plan.tradeoff(0.1) == pytest.approx(0.38914, abs=2e-3) and 1 - plan.tradeoff(0.1) >= 0.38914
    curve = plan.tradeoff(np.linspace(0, 1, 11))
    assert curve.shape == (11,) and np.all(np.diff(curve) <= 0) and curve[-1] == 0
    assert 1.0 <= plan.mu() < 1.1
    assert plan.mu(floor=1e-4) <= plan.mu(floor=1e-12) * 1.1


def test_prices_can_be_pickled():
    for price in [sordino.epsilon(**SETTING), sordino.epsilon(**dict(SETTING, steps=[10, 20])), sordino.epsilon(accountant="gdp-clt", **SETTING)]:
        again = pickle.loads(pickle.dumps(price))
        assert again == price and repr(again) == repr(price) and again.proved == price.proved


def test_threads_compute_at_the_same_time():
    results = []
    threads = [threading.Thread(target=lambda: results.append(sordino.epsilon(**SETTING))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8 and all(price == results[0] for price in results)


# Invalid input

NUMBERS = ["noise_multiplier", "sample_rate", "steps", "delta"]


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-1, -1.0, 0, float("nan"), float("inf"), float("-inf"), 10**30, 10**400, np.float32("nan")])
def test_numbers_out_of_range_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"^{name} must be") as error:
        sordino.epsilon(**dict(SETTING, **{name: value}))
    assert "\nhint: " in str(error.value)
    if name != "delta":
        with pytest.raises(ValueError, match=f"^{name} must be"):
            sordino.Step(**{key: item for key, item in dict(SETTING, **{name: value}).items() if key != "delta"})


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ["1", b"1", "abc", {}, object(), 1j, ["a"], [None], np.array([1j]), np.array([True]), [object()]])
def test_values_of_the_wrong_type_are_refused_by_name(name, value):
    with pytest.raises((TypeError, ValueError), match=f"^{name} must be"):
        sordino.epsilon(**dict(SETTING, **{name: value}))


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [[], np.array([]), np.ones((2, 3)), [[0.5, 0.5]], np.ones((0, 2)), [[1.0], [1.0, 2.0]]])
def test_arrays_of_the_wrong_shape_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        sordino.epsilon(**dict(SETTING, **{name: value}))


@pytest.mark.parametrize("name", NUMBERS)
def test_one_bad_number_in_an_array_is_refused(name):
    good = SETTING[name]
    with pytest.raises(ValueError, match=f"^{name} must be.*got (-1|NaN)"):
        sordino.epsilon(**dict(SETTING, **{name: [good, -1]}))
    with pytest.raises(ValueError, match=f"^{name} must be.*got NaN"):
        sordino.epsilon(**dict(SETTING, **{name: np.array([good, np.nan])}))


def test_steps_are_whole_numbers():
    for steps in [15_000.0, np.int64(15_000), np.float64(15_000), np.uint16(15_000)]:
        assert sordino.epsilon(**dict(SETTING, steps=steps)) == sordino.epsilon(**SETTING)
    for steps in [0, 1.5, 2**40 + 1, -3]:
        with pytest.raises(ValueError, match=f"^steps must be a whole number .*got {steps}"):
            sordino.epsilon(**dict(SETTING, steps=steps))
    with pytest.raises(ValueError, match="^batch_size must be a whole number"):
        sordino.Step(sampling="fixed-size", noise_multiplier=1.0, batch_size=1.5, population=10, steps=1)


def test_whole_multipliers_are_floats():
    assert sordino.epsilon(**dict(SETTING, noise_multiplier=1)) == sordino.epsilon(**dict(SETTING, noise_multiplier=1.0))


def test_budgets_that_are_invalid_or_cannot_be_met_are_refused():
    setting = dict(sample_rate=0.1, steps=10, delta=1e-5)
    for epsilon in [-1, float("nan"), float("inf")]:
        with pytest.raises(ValueError, match="^target_epsilon must be") as error:
            sordino.noise_multiplier(target_epsilon=epsilon, **setting)
        assert not isinstance(error.value, sordino.BudgetError)
    with pytest.raises(sordino.BudgetError, match="no noise multiplier meets the target"):
        sordino.noise_multiplier(target_epsilon=0, **setting)
    assert issubclass(sordino.BudgetError, ValueError)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="^accountant must be one of pld, .*got prv"):
        sordino.epsilon(accountant="prv", **SETTING)
    with pytest.raises(ValueError, match="^sampling must be one of poisson, .*got shuffle"):
        sordino.epsilon(sampling="shuffle", **SETTING)
    for function in [sordino.epsilon, sordino.Step]:
        with pytest.raises(TypeError, match="unexpected keyword argument 'sigma'"):
            function(sigma=1.0, **SETTING) if function is sordino.epsilon else function(noise_multiplier=1.0, steps=1, sigma=1.0)
    with pytest.raises(TypeError, match="noise_multiplier"):
        sordino.epsilon(sample_rate=0.1, steps=1, delta=1e-5)
    with pytest.raises(TypeError):
        sordino.epsilon(1.0, 0.01, 1000, 1e-5)
    with pytest.raises(ValueError, match="needs sample_rate"):
        sordino.epsilon(noise_multiplier=1.0, steps=1, delta=1e-5)
    with pytest.raises(ValueError, match="between 1 and the population of 8, got 9"):
        sordino.Step(sampling="fixed-size", noise_multiplier=1.0, batch_size=9, population=8, steps=1)


def test_group_sizes_out_of_range_are_refused():
    for size in [0, -1, 1001, 1.5, 10**12]:
        with pytest.raises(ValueError, match="^group_size must be"):
            sordino.epsilon(group_size=size, **SETTING)


def test_plans_refuse_invalid_steps_and_texts():
    for bad in [[1], [None], "ab", [{"steps": 1}], 5]:
        with pytest.raises(TypeError):
            sordino.Plan(bad)
    plan = sordino.Plan([dp_sgd()])
    for operation in [lambda: plan + 1, lambda: plan * -1, lambda: plan * 1.5, lambda: plan.compose(3), lambda: hash(plan)]:
        with pytest.raises(TypeError):
            operation()
    with pytest.raises(ValueError):
        plan * 0
    with pytest.raises(ValueError):
        plan * 2**60
    for text in ["", "{", "[1]", '[{"noise": 1}]', '[{"noise_multiplier":1,"sample_rate":1.7,"steps":1}]']:
        with pytest.raises(ValueError, match="not a plan") as error:
            sordino.Plan.from_json(text)
        assert "noise_multiplier" in str(error.value)


def test_profiles_refuse_invalid_numbers():
    plan = sordino.Plan([dp_sgd()])
    for bad in [-1.0, float("nan"), float("inf"), [1.0, -1.0], [], np.ones((2, 2))]:
        with pytest.raises(ValueError, match="^epsilon"):
            plan.delta(bad)
        with pytest.raises(ValueError, match="^epsilon"):
            plan.profile(bad)
    for bad in [-0.1, 1.1, float("nan"), [0.5, 2.0], []]:
        with pytest.raises(ValueError, match="^alphas must be"):
            plan.tradeoff(bad)
    for floor in [0.0, 1.0, -1.0, float("nan")]:
        with pytest.raises(ValueError, match="^floor must be"):
            plan.mu(floor=floor)


def test_objects_cannot_be_changed():
    price, step, plan = sordino.epsilon(**SETTING), dp_sgd(), sordino.Plan([dp_sgd()])
    for item, name in [(price, "epsilon"), (price, "proved"), (step, "steps"), (plan, "steps")]:
        with pytest.raises(AttributeError):
            setattr(item, name, 0)
    prices = sordino.epsilon(**dict(SETTING, steps=[10, 20]))
    prices.epsilon[0] = 0
    assert prices.epsilon[0] > 0
