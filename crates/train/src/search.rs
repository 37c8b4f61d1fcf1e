//! A search for settings on private data, with one guarantee for all of it.
//!
//! The stages are those of a run. Every candidate is resolved and priced, then the search as a whole, before any record is used. Each trial
//! is a private run in memory of a candidate drawn at random; the number of trials is random; only the best trial is released.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
};

use sordino_accounting::{
    Accountant, Entry, Epsilon, Guarantee, Plan,
    calibrate::Budget,
    tuning::{self, Runs},
};
use sordino_privacy::{
    Account, MeasurementBudget, PrivacyError, Randomness, Search, SearchPlan, Terms, Tried,
};

use crate::{
    DataDescription, Ending, Measurement, Metrics, Origin, PricedRun, Run, RunData, RunFiles, RunFolder,
    Score, SettingValues, Settings, SeveralRuns, TrainError, Value, check,
    folder::{failed, write_whole},
    format::rounded_up,
    inspection::TEMPERATURE,
    metrics, price, resolve, seal,
};

/// What a search is given besides its candidates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchSettings {
    /// The privacy budget of the whole search.
    pub budget: Budget,
    /// The distribution of the number of trials.
    pub runs: Runs,
    /// A seed. A search with a seed is not private.
    pub seed: Option<u64>,
}

/// A search that is ready to start: all candidates are priced, and the terms of the search are fixed.
#[derive(Debug, Clone)]
pub struct PricedSearch {
    /// The candidates, each as a run with the noise of a trial.
    pub candidates: Vec<PricedRun>,
    /// The budget of one trial, which is smaller than that of the search.
    pub trial: Budget,
    /// The plan of the search, its price, and what the ledger stores about it.
    pub terms: Terms,
    /// The settings of the unfinished search: those of the data, and the budget.
    begun: Settings,
    files: RunFiles,
    seed: Option<u64>,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Selected {
    /// The number of the selected candidate.
    pub candidate: usize,
    /// Its score.
    pub score: Option<Score>,
    /// All metrics of its last measurement.
    pub metrics: Option<Metrics>,
    /// The content of the ledger of the search.
    pub account: Account,
    /// The seconds of its training. Those of the search would reveal the number of trials.
    pub seconds: f64,
}

/// Prices a search over candidates, each given by its settings, with the least noise that the budget allows.
///
/// # Errors
/// A candidate that is refused or has no guarantee; a budget that no noise meets.
pub fn price_search(
    candidates: &[Settings],
    data: &DataDescription,
    search: SearchSettings,
) -> Result<PricedSearch, TrainError> {
    for settings in candidates {
        check_candidate(settings)?;
    }
    if data.facts.test_records == 0 {
        return Err(TrainError::refused(
            "a search needs test records to score its trials",
            "leave out {test_fraction=0}",
        ));
    }
    let (mut low, mut high) = (None::<(f64, f64)>, None::<(f64, f64)>);
    let target = search.budget.epsilon.get();
    let mut next = 0.6 * target;
    let mut best = None;
    // The epsilon of the search grows with that of a trial, nearly in proportion.
    for _ in 0..20 {
        let trial = Budget { epsilon: Epsilon::new(next)?, delta: search.budget.delta };
        let priced = price_candidates(candidates, data, trial)?;
        let spent = cost(&priced, search)?;
        let fits = spent <= target;
        if fits {
            low = Some((next, spent));
            best = Some((priced, trial));
        } else {
            high = Some((next, spent));
        }
        if fits && spent >= 0.99 * target {
            break;
        }
        let aim = 0.996 * target;
        next = match (low, high) {
            (Some((a, f)), Some((b, g))) if g > f => {
                let share = ((aim - f) / (g - f)).clamp(0.05, 0.95);
                a + share * (b - a)
            }
            _ => next * (aim / spent).clamp(0.2, 5.0),
        };
        if low.zip(high).is_some_and(|(low, high)| high.0 - low.0 < 1e-4 * high.0) {
            break;
        }
    }
    let Some((candidates, trial)) = best else {
        return Err(TrainError::refused(
            format!("no noise keeps this search within epsilon {target}"),
            "raise {epsilon}, or try fewer trials",
        ));
    };
    PricedSearch::new(candidates, trial, data, search)
}

/// Refuses candidates whose trials would have no guarantee.
fn check_candidate(settings: &Settings) -> Result<(), TrainError> {
    check(settings)?;
    if settings.noise_multiplier.is_some() {
        return Err(TrainError::refused(
            "the noise of a search follows from its privacy budget",
            "leave out {noise_multiplier}",
        ));
    }
    let algorithm = crate::parse_algorithm(settings.algorithm.as_deref().unwrap_or("dp-sgd"))?;
    let about = algorithm.about();
    if let Some(formula) = algorithm.noise_formula().filter(|_| about.verdict.is_sound()) {
        return Err(TrainError::refused(
            format!(
                "the noise of a search follows from its privacy budget, but with these options {} takes its noise from {formula}",
                about.name
            ),
            "leave out the option noise",
        ));
    }
    match about.verdict.is_sound() && !algorithm.is_plain() {
        true => Ok(()),
        false => Err(TrainError::refused(
            format!("{} has no guarantee that a search can use", about.name),
            "search over algorithms that are sound; {algorithm=dp-sgd} is the default",
        )),
    }
}

/// All candidates with the budget of a trial. Candidates with the same plan are priced once.
fn price_candidates(
    candidates: &[Settings],
    data: &DataDescription,
    trial: Budget,
) -> Result<Vec<PricedRun>, TrainError> {
    let mut known: HashMap<String, PricedRun> = HashMap::new();
    let one = |settings: &Settings| {
        let settings =
            Settings { epsilon: Some(trial.epsilon), delta: Some(trial.delta), ..settings.clone() };
        let resolved = resolve(&settings, data)?;
        // A plan depends on these alone.
        let algorithm = resolved.values.algorithm.as_ref().map(|algorithm| &algorithm.value);
        let key = format!(
            "{algorithm:?} {:?} {:?} {}",
            resolved.files.schedules, resolved.facts, resolved.accountant
        );
        let priced = match known.get(&key) {
            Some(same) => same.for_settings(resolved),
            None => price(resolved, None)?,
        };
        known.entry(key).or_insert_with(|| priced.clone());
        Ok(priced)
    };
    candidates.iter().map(one).collect()
}

/// The plans of the candidates.
fn plans(candidates: &[PricedRun]) -> Vec<Plan> {
    candidates.iter().map(|candidate| candidate.plan.clone()).collect()
}

/// The epsilon of the search, within the budget or not.
fn cost(candidates: &[PricedRun], search: SearchSettings) -> Result<f64, TrainError> {
    let plan = SearchPlan { candidates: plans(candidates), runs: search.runs, measuring: None };
    match plan.price(search.budget) {
        Ok(guarantee) => Ok(guarantee.epsilon.get()),
        Err(PrivacyError::OverBudget { cost, .. }) => Ok(cost.get()),
        Err(error) => Err(error.into()),
    }
}

/// The smallest noise multiplier of a plan.
pub fn noise_multiplier(plan: &Plan) -> f64 {
    plan.entries().iter().map(Entry::effective_noise_multiplier).fold(f64::INFINITY, f64::min)
}

impl PricedSearch {
    fn new(
        candidates: Vec<PricedRun>,
        trial: Budget,
        data: &DataDescription,
        search: SearchSettings,
    ) -> Result<Self, TrainError> {
        let value = |epsilon| Some(Value::new(epsilon, Origin::User));
        let begun = SettingValues {
            epsilon: value(search.budget.epsilon),
            delta: Some(Value::new(search.budget.delta, Origin::User)),
            seed: search.seed.map(|seed| Value::new(seed, Origin::User)),
            ..data.values.clone()
        };
        let (begun, files) = (begun.to_settings(), RunFiles::of_data(data));
        // The measurement of a trial never costs more than its training.
        let largest = SearchPlan::largest_measuring(search.runs, search.budget)?;
        let trials = candidates.iter().filter_map(|candidate| candidate.terms.guarantee());
        let measuring = trials.map(|trial| trial.epsilon).fold(largest, |a, b| if b < a { b } else { a });
        let candidates = candidates
            .into_iter()
            .map(|candidate| candidate.measured_once_with(measuring))
            .collect::<Result<Vec<_>, _>>()?;
        let plan = SearchPlan {
            candidates: plans(&candidates),
            runs: search.runs,
            measuring: candidates[0].terms.measurement_budget(),
        };
        let records = candidates[0].resolved.facts.records;
        let terms =
            Terms::search(plan, records, search.budget)?.about(&(files.about(&begun) + &data.last_changed));
        Ok(Self { candidates, trial, terms, begun, files, seed: search.seed })
    }

    /// The guarantee of the search.
    pub fn guarantee(&self) -> Result<Guarantee, TrainError> {
        self.terms
            .guarantee()
            .copied()
            .ok_or_else(|| TrainError::refused("a search without a guarantee", "report this as a bug"))
    }

    /// What a trial may measure on protected test records; none if they are public.
    pub fn measuring(&self) -> Option<MeasurementBudget> {
        self.terms.search_plan().and_then(|plan| plan.measuring)
    }

    /// The distribution of the number of trials.
    pub fn runs(&self) -> Option<Runs> {
        self.terms.search_plan().map(|plan| plan.runs)
    }

    /// What it costs to train every candidate once and release everything: by composition, and by adding up epsilons.
    ///
    /// # Errors
    /// Plans that cannot be priced together.
    pub fn cost_of_all(&self) -> Result<(Epsilon, f64), TrainError> {
        let composed =
            tuning::sequential_epsilon(&plans(&self.candidates), Accountant::Pld, self.trial.delta)?;
        let sum = self.candidates.iter().filter_map(|candidate| candidate.terms.guarantee());
        Ok((composed, sum.map(|guarantee| guarantee.epsilon.get()).sum()))
    }

    /// Searches, and writes the best trial into the folder as a finished run. The folder and the ledger do not depend on the number of trials.
    ///
    /// # Errors
    /// As [`TrainError`] lists them. A search that fails or is stopped after its ledger began has spent its whole budget and releases nothing.
    pub fn run(&self, data: &RunData, folder: &RunFolder, stop: &AtomicBool) -> Result<Selected, TrainError> {
        self.files.write(folder)?;
        write_whole(&folder.config(), self.begun.to_toml().as_bytes())?;
        let randomness = match self.seed {
            None => Randomness::from_os()?,
            Some(seed) => Randomness::seeded(seed),
        };
        let mut search = Search::begin(&self.terms, randomness, &folder.ledger())?;
        let runs = SeveralRuns::new(data);
        let mut number = 0;
        let selected = search.select(|candidate| {
            number += 1;
            let ending = self.trial(candidate, number, &runs, stop)?;
            let score = ending.score.map_or(f64::NAN, |score| score.to_compare());
            Ok::<_, TrainError>(Tried { account: ending.account.clone(), score, output: (candidate, ending) })
        })?;
        let Some((candidate, ending)) = selected else {
            return Err(TrainError::refused("the search had no trials", "report this as a bug"));
        };
        let account = self.write(search, folder, candidate, &ending)?;
        let Ending { score, metrics, seconds, .. } = ending;
        Ok(Selected { candidate, score, metrics, account, seconds })
    }

    /// One trial, in memory.
    fn trial(
        &self,
        candidate: usize,
        number: u64,
        runs: &SeveralRuns<'_>,
        stop: &AtomicBool,
    ) -> Result<Ending, TrainError> {
        let begin = |run: Run<'_>| run.with_seed_offset(number).measured_once().begin(stop, &mut ());
        let ending = runs.run(&self.candidates[candidate], begin)?;
        if stop.load(Ordering::Relaxed) || !ending.finished {
            return Err(stopped());
        }
        Ok(ending)
    }

    /// Writes the selected trial. The ledger has its settings and the hash of its weights before they are written.
    fn write(
        &self,
        mut search: Search,
        folder: &RunFolder,
        candidate: usize,
        ending: &Ending,
    ) -> Result<Account, TrainError> {
        let priced = &self.candidates[candidate];
        search.choose(ending.account.about())?;
        priced.resolved.files.write(folder)?;
        let note = match self.seed {
            None => {
                "Selected by a search, whose guarantee is in the ledger. Epsilon is that of one trial alone."
            }
            Some(_) => "NOT PRIVATE: noise and batches come from a fixed seed",
        };
        let settings = format!("# {note}\n{}", priced.settings().to_toml());
        write_whole(&folder.config(), settings.as_bytes())?;
        let guarantee = self.guarantee()?;
        let model = |account: &Account, more: HashMap<String, String>| {
            let mut notes = priced.notes(account);
            if self.seed.is_none() {
                let text = format!(
                    "({}, {})-differential privacy, {}, for the whole search",
                    rounded_up(guarantee.epsilon.get()),
                    guarantee.delta,
                    guarantee.relation
                );
                notes.insert("guarantee".to_owned(), text);
            }
            let temperature = ending.metrics.as_ref().and_then(|metrics| metrics.temperature);
            notes.extend(temperature.map(|fitted| (TEMPERATURE.to_owned(), fitted.value.to_string())));
            notes.extend(more);
            ending.params.to_safetensors_noting(notes)
        };
        let weights = model(search.account(), HashMap::new())?;
        let hash = seal::weights_hash(&weights).map_err(|error| failed(&folder.model(), &error))?;
        search.enter_model(&hash)?;
        write_whole(&folder.model(), &model(search.account(), seal::notes(search.account()))?)?;
        if let Some(score) = ending.score {
            let (step, seconds) = (priced.terms.steps(), ending.seconds);
            let (private, protected) = (self.seed.is_none(), priced.terms.measurement_budget().is_some());
            let metrics = ending.metrics.clone();
            metrics::append(folder, &Measurement { step, score, seconds, private, protected, metrics })?;
        }
        let account = search.close()?;
        write_whole(&folder.model(), &model(&account, seal::notes(&account))?)?;
        Ok(account)
    }
}

/// The error of a search that was stopped.
fn stopped() -> TrainError {
    TrainError::refused(
        "the search was stopped: its whole privacy budget is spent, and nothing is released",
        "when a search stops may depend on its secret number of trials, so it cannot be continued; a new search needs a new budget",
    )
}
