//! An audit of a run: all attacks that suit its algorithm.

use std::{sync::Mutex, time::Instant};

use rayon::prelude::*;
use sordino_accounting::{Delta, Epsilon};
use sordino_algorithms::{Algorithm, AlgorithmConfig, Verdict};
use sordino_data::Dataset;
use sordino_nn::{Engine, Params};
use sordino_privacy::Randomness;
use sordino_train::{NetworkGradients, PricedRun};

use crate::{
    Attack, AuditError, AuditResult, Canaries, Check, Claim, Confidence, Guesses, Kind, LowerBound,
    NoRecords, Observation, Observations, Scored, StepEvidence, Subject, VaultMechanism,
    auditor_coins::Coins,
    copies, counted_kinds,
    distinguish::{distinguish, runs_against},
    estimators::{
        Family, Spread, best_threshold, many_runs, one_run, one_run_ceiling, one_run_fdp,
        one_run_fdp_ceiling, one_run_gaussian,
    },
    final_model::FinalModel,
    kinds, largest_contribution,
    synthetic::{Background, Form, Synthetic, Uniform},
    whole_run_scores,
};

/// The number of synthetic records that replace public records where there are none.
const STAND_INS: usize = 1000;

/// The probability that a test of one part of the step audit fails by chance. The tests have power to spare, and an audit has up to four parts.
const ALARMS: f64 = 2.5e-6;

/// The size of an audit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AuditOptions {
    /// The number of coordinates with canaries of the step audit.
    pub step_canaries: usize,
    /// The largest number of steps of the step audit.
    pub steps: u64,
    /// The number of canaries of attacks on one whole run.
    pub canaries: usize,
    /// The number of runs of the attack on final models; 0 for none.
    pub runs: u64,
    /// The confidence of lower bounds. The step audit has a confidence of at least 99.9 %.
    pub confidence: Confidence,
    /// Fixes all coins and noise, so that the audit can be repeated. The coins of a real audit are fresh.
    pub seed: Option<u64>,
}

/// Receives the progress of an audit.
pub trait Progress {
    /// A part of the audit begins, with this number of steps or runs.
    fn begin(&mut self, _part: &str, _count: u64) {}
    /// One of them is done. Returns false to stop the audit.
    fn advance(&mut self) -> bool {
        true
    }
}

/// Ignores progress.
impl Progress for () {}

/// Attacks a run and tests its parts.
///
/// Private records are not used, because even an attack on them inside the vault would be a further release. The canaries are added to
/// public records, which are the test records of the run, or to synthetic records if there are none. The plan, the algorithm, the
/// network and the vault are those of the run.
///
/// # Errors
/// An algorithm without an epsilon; errors of training; [`AuditError::Stopped`].
pub fn audit(
    run: &PricedRun,
    algorithm: &AlgorithmConfig,
    public: Option<&Dataset>,
    options: &AuditOptions,
    progress: &mut (dyn Progress + Send),
) -> Result<AuditResult, AuditError> {
    let begun = Instant::now();
    if run.resolved.local.is_some() {
        return Err(AuditError::Refused {
            problem: "an audit attacks gradients of records or units, but this run adds updates of clients"
                .to_owned(),
            hint:
                "audit the same plan with the clients as the unit of privacy: `sordino audit --unit COLUMN`"
                    .to_owned(),
        });
    }
    let form = Form::of(run)?;
    let encoded = public.map(|public| run.resolved.model.encode(public)).transpose()?.flatten();
    let stand_ins = Synthetic::new(
        &form,
        &vec![1.0; STAND_INS.min(run.resolved.facts.records as usize)],
        &mut Uniform::new(0),
    );
    let records = match encoded.as_ref().or(public) {
        Some(public) => Background::of(public).unwrap_or_else(|| stand_ins.background()),
        None => stand_ins.background(),
    };
    let auditor = Auditor {
        run,
        subject: Subject {
            algorithm,
            facts: &run.resolved.facts,
            plan: &run.plan,
            learning: &run.resolved.learning,
        },
        records,
        form,
        options,
        claim: claim(run, algorithm)?,
    };
    let (mut attacks, mut checks, mut untested) = (Vec::new(), Vec::new(), Vec::new());
    if algorithm.about().verdict.is_sound() {
        checks.push(auditor.network_check()?);
        let evidence = auditor.step_evidence(progress)?;
        attacks.push(auditor.step_attack(&evidence)?);
        attacks.extend(auditor.whole_run(&evidence, progress)?);
        checks.extend(evidence.checks);
        untested = evidence.untested;
    } else {
        attacks.extend(auditor.distinguishing(progress)?);
    }
    attacks.extend(auditor.final_model_one_run(progress)?);
    if options.runs > 0 {
        attacks.extend(auditor.final_model_many_runs(progress)?);
    }
    let settings = run.settings();
    Ok(AuditResult {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        algorithm: settings.algorithm.unwrap_or_default(),
        data: settings.data.map(|data| data.display().to_string()).unwrap_or_default(),
        claim: Claim {
            epsilon: auditor.claim.0.get(),
            delta: auditor.claim.1.get(),
            proved: algorithm.about().verdict.is_sound(),
        },
        seed: options.seed,
        untested,
        records: match public {
            Some(public) => format!("{} public test records", public.len()),
            None => format!("{} synthetic records", records.count),
        },
        attacks,
        checks,
        seconds: (1e3 * begun.elapsed().as_secs_f64()).round() / 1e3,
    })
}

/// The epsilon that a run prints, and its delta.
fn claim(run: &PricedRun, algorithm: &AlgorithmConfig) -> Result<(Epsilon, Delta), AuditError> {
    let verdict = algorithm.about().verdict;
    let claimed = match verdict {
        Verdict::Sound(_) => run.terms.guarantee().map(|guarantee| (guarantee.epsilon, guarantee.delta)),
        Verdict::AsPublished { .. } => run.resolved.facts.claim.map(|claim| (claim.epsilon, claim.delta)),
        Verdict::NotPrivate(_) => None,
    };
    claimed.ok_or_else(|| AuditError::Refused {
        problem: format!("algorithm {} has no epsilon that could be tested", algorithm.about().name),
        hint: "audit a private algorithm, such as {algorithm=dp-sgd}".to_owned(),
    })
}

struct Auditor<'a> {
    run: &'a PricedRun,
    subject: Subject<'a>,
    records: Background<'a>,
    form: Form,
    options: &'a AuditOptions,
    claim: (Epsilon, Delta),
}

impl<'a> Auditor<'a> {
    fn engine(&self) -> Result<Engine, AuditError> {
        Ok(self.run.resolved.engine(None)?)
    }

    fn initial(&self, coins: &Coins) -> Result<Params, AuditError> {
        let model = &self.run.resolved.model;
        Ok(model.initial(&model.network()?, coins.public_seed(0)?)?)
    }

    /// Canaries with these norms. If the run clips each layer separately, their gradients are divided over all layers.
    fn canaries(&self, norms: Vec<f64>, copies: usize, free: usize, layers: usize) -> Canaries {
        let parts = if self.subject.facts.layers.is_some() { layers } else { 1 };
        Canaries { parts, ..Canaries::with_norms(norms, copies, free) }
    }

    /// Canaries of the step audit. Their gradients are always divided over all layers, so that a rule that bounds each layer, and not the
    /// whole gradient, is found.
    fn step_canaries(&self, norms: Vec<f64>, copies: usize, layers: usize) -> Canaries {
        let free = self.options.step_canaries;
        Canaries { parts: layers, ..Canaries::with_norms(norms, copies, free) }
    }

    fn layers(&self) -> Result<usize, AuditError> {
        Ok(self.run.resolved.model.network()?.layers().len())
    }

    /// A test of the contribution of synthetic records of all sizes, as the network computes it.
    fn network_check(&self) -> Result<Check, AuditError> {
        let coins = Coins::new(self.options.seed, 1, 0)?;
        let clip = self.subject.facts.max_grad_norm.get();
        let sizes: Vec<f32> = [0.0, 0.1, 1.0, 10.0, 1e3, 1e9, 1e30, f32::INFINITY, f32::NAN].repeat(4);
        let mut random = Uniform::new(coins.public_seed(1)?);
        let mut synthetic = Synthetic::new(&self.form, &sizes, &mut random);
        if let Some(unit) = &self.run.resolved.data.unit {
            // Units of equal records: if records were clipped one by one, their sum would be too large.
            let records = unit.records.unwrap_or(8).min(8);
            let sizes: Vec<f32> = sizes.iter().flat_map(|&size| std::iter::repeat_n(size, records)).collect();
            synthetic = Synthetic::new(&self.form, &sizes, &mut random).in_units_of(records)?;
        }
        let engine = self.engine()?;
        let records = synthetic.background().checked(&self.run.resolved, &engine)?;
        let mut gradients = NetworkGradients::new(engine, records);
        let largest = largest_contribution(&mut gradients, &self.initial(&coins)?, 0..sizes.len(), clip)?;
        Ok(Check {
            name: "contribution through the network".to_owned(),
            meaning: "The largest norm of what one synthetic record, or unit of records, adds to a clipped sum, in units of the clipping norm. The \
                      inputs of records are of size 0 to 1e30, infinite, or not a number."
                .to_owned(),
            measured: largest,
            low: 0.0,
            high: 1.0 + 1e-4,
            false_alarm_rate: 0.0,
        })
    }

    fn step_evidence(&self, progress: &mut (dyn Progress + Send)) -> Result<StepEvidence, AuditError> {
        let layers = self.layers()?;
        let count = self.options.steps.min(self.subject.plan.steps());
        let all = kinds(self.options.step_canaries);
        let coins = Coins::new(self.options.seed, 2, 0)?;
        progress.begin("step audit", count);
        let engine = self.engine()?;
        let records = self.records.checked(&self.run.resolved, &engine)?;
        let mut evidence = self.observed(
            &all,
            NetworkGradients::new(engine, records),
            self.initial(&coins)?,
            coins.randomness(1)?,
            (count, layers, true),
            progress,
        )?;
        if self.subject.plan.entries().iter().any(|entry| entry.releases().len() > 1) {
            progress.begin("step audit of counts", count);
            let counted = counted_kinds(self.options.step_canaries);
            let other = self.observed(
                &counted,
                NoRecords::new(layers),
                vec![0.0],
                coins.randomness(2)?,
                (count, layers, false),
                progress,
            )?;
            evidence = evidence.and(other.renamed("without records"));
        }
        // With one slot, most batches are empty.
        let few = count.min(100);
        progress.begin("step audit of empty batches", few);
        let other = self.noise_alone(
            NoRecords::new(layers),
            vec![0.0],
            (few, layers),
            coins.randomness(3)?,
            progress,
        )?;
        evidence.checks.extend(other.renamed("empty batches").checks);
        progress.begin("step audit of the network's coordinates", few);
        let engine = self.engine()?;
        let records = self.records.checked(&self.run.resolved, &engine)?;
        let gradients = NetworkGradients::new(engine, records);
        let initial = self.initial(&coins)?;
        let other = self.noise_alone(gradients, initial, (few, layers), coins.randomness(4)?, progress)?;
        evidence.checks.extend(other.renamed("network").checks);
        Ok(evidence)
    }

    fn observed<G: sordino_privacy::Gradients>(
        &self,
        kinds: &[Kind],
        gradients: G,
        point: G::Point,
        randomness: Randomness,
        (count, layers, with_ledger): (u64, usize, bool),
        progress: &mut (dyn Progress + Send),
    ) -> Result<StepEvidence, AuditError>
    where
        G::Point: 'static,
    {
        let clip = self.subject.facts.max_grad_norm.get();
        let norms = kinds.iter().flat_map(|kind| vec![kind.norm * clip; kind.coordinates]).collect();
        let copies = copies(self.subject.plan);
        let canaries = self.step_canaries(norms, copies, layers);
        let records = gradients.records();
        let mut mechanism =
            VaultMechanism::new(self.subject, gradients, true, canaries, point, randomness, with_ledger)?;
        let plan = self.subject.plan;
        let mut advance = || progress.advance();
        let observed =
            Observations::gather(&mut mechanism, plan, kinds, copies, records, count, &mut advance)?;
        Ok(observed.evidence(step_level(self.options.confidence), ALARMS))
    }

    /// The noise alone: all slots are empty.
    fn noise_alone<G: sordino_privacy::Gradients>(
        &self,
        gradients: G,
        point: G::Point,
        (count, layers): (u64, usize),
        randomness: Randomness,
        progress: &mut (dyn Progress + Send),
    ) -> Result<StepEvidence, AuditError>
    where
        G::Point: 'static,
    {
        let kinds = &[Kind { name: "C", norm: 1.0, coordinates: 1 }];
        let records = gradients.records();
        let mut canaries = self.step_canaries(vec![1.0], 1, layers);
        canaries.members = vec![false];
        let mut mechanism =
            VaultMechanism::new(self.subject, gradients, false, canaries, point, randomness, false)?;
        let mut advance = || progress.advance();
        let plan = self.subject.plan;
        let observed = Observations::gather(&mut mechanism, plan, kinds, 1, records, count, &mut advance)?;
        Ok(observed.noise_evidence(ALARMS))
    }

    fn step_attack(&self, evidence: &StepEvidence) -> Result<Attack, AuditError> {
        let bound = evidence.lower_bound(self.subject.plan, self.claim.1)?;
        let all = self.options.steps >= self.subject.plan.steps();
        let assumption = "all steps are like those that were observed".to_owned();
        Ok(Attack {
            observation: Observation::Step,
            estimator: "measured noise, jumps and rate".to_owned(),
            assumption: (!all).then_some(assumption),
            confidence: 1.0 - step_level(self.options.confidence),
            canaries: self.options.step_canaries as u64,
            runs: 1,
            lower_bound: bound,
            points: Vec::new(),
        })
    }

    fn whole_run(
        &self,
        evidence: &StepEvidence,
        progress: &mut (dyn Progress + Send),
    ) -> Result<Vec<Attack>, AuditError> {
        let (layers, plan) = (self.layers()?, self.subject.plan);
        progress.begin("attack on the whole run", plan.steps());
        let coins = Coins::new(self.options.seed, 3, self.options.canaries)?;
        let members = coins.all();
        let norm = crate::steps::STRONGEST * self.subject.facts.max_grad_norm.get();
        let mut canaries = self.canaries(vec![norm; members.len()], 1, 0, layers);
        canaries.members.clone_from(&members);
        let engine = self.engine()?;
        let records = self.records.checked(&self.run.resolved, &engine)?;
        let mut mechanism = VaultMechanism::new(
            self.subject,
            NetworkGradients::new(engine, records),
            true,
            canaries,
            self.initial(&coins)?,
            coins.randomness(1)?,
            false,
        )?;
        let mut advance = || progress.advance();
        let response = &evidence.response;
        let records = self.records.count;
        let scores = whole_run_scores(&mut mechanism, plan, records, &members, response, &mut advance)?;
        Ok(self.one_run_bounds(&scores, Observation::WholeRun))
    }

    /// The bounds from one run. The numbers of guesses depend on public numbers only.
    fn one_run_bounds(&self, scores: &[Scored], observation: Observation) -> Vec<Attack> {
        let (epsilon, delta) = self.claim;
        let confidence = self.options.confidence;
        let count = scores.len() as u64;
        let guesses: Vec<Guesses> = match observation {
            Observation::FinalModel => Guesses::list(count),
            _ => vec![one_run_ceiling(count, epsilon, delta, confidence).guesses],
        };
        let fdp: Vec<Guesses> = match observation {
            Observation::FinalModel => Guesses::list(count),
            _ => vec![one_run_fdp_ceiling(count, epsilon, delta, confidence).guesses],
        };
        let attack = |bound: LowerBound| bound.attack(observation, count, 1);
        vec![
            attack(one_run(scores, &guesses, delta, confidence)),
            attack(one_run_fdp(scores, &fdp, &Family::gaussian(delta), confidence)),
            attack(one_run_gaussian(scores, Spread::Estimated, delta, confidence)),
        ]
    }

    fn distinguishing(&self, progress: &mut (dyn Progress + Send)) -> Result<Vec<Attack>, AuditError> {
        let runs = runs_against(self.claim.0);
        progress.begin("attack on a data set of the attacker's choice", runs);
        let coins = Coins::new(self.options.seed, 4, runs as usize)?;
        let progress = Mutex::new(progress);
        let advance = |_| progress.lock().is_ok_and(|mut progress| progress.advance());
        distinguish(
            self.subject,
            self.layers()?,
            runs,
            self.claim.1,
            self.options.confidence,
            &coins,
            &advance,
        )
    }

    fn final_model_one_run(&self, progress: &mut (dyn Progress + Send)) -> Result<Vec<Attack>, AuditError> {
        // At most a tenth of the records, so that the model still depends mainly on the records.
        let count = self.options.canaries.min((self.records.count / 10).max(2));
        let coins = Coins::new(self.options.seed, 5, count)?;
        let mut random = Uniform::new(coins.public_seed(2)?);
        let synthetic = Synthetic::new(&self.form, &vec![1.0; count], &mut random);
        progress.begin("attack on the final model", self.subject.plan.steps());
        let attack = self.final_model(&synthetic, rayon::current_num_threads());
        let mut advance = || progress.advance();
        let scores =
            attack.scores(&coins.all(), coins.public_seed(3)?, coins.randomness(1)?, &mut advance)?;
        let mut bounds = self.one_run_bounds(&scores, Observation::FinalModel);
        // Losses are not normal.
        bounds.truncate(2);
        Ok(bounds)
    }

    fn final_model_many_runs(&self, progress: &mut (dyn Progress + Send)) -> Result<Vec<Attack>, AuditError> {
        let (runs, delta) = (self.options.runs, self.claim.1);
        let coins = Coins::new(self.options.seed, 6, runs as usize)?;
        let mut random = Uniform::new(coins.public_seed(4)?);
        // One blank record.
        let synthetic = Synthetic::new(&self.form, &[0.0], &mut random);
        progress.begin("attack on many final models", runs);
        let attack = self.final_model(&synthetic, 1);
        let seed = coins.public_seed(5)?;
        let progress = Mutex::new(progress);
        let scores: Vec<Scored> = (0..runs)
            .into_par_iter()
            .map(|number| {
                let members = [coins.member(number)];
                // The initial parameters are the attacker's choice: the same in all runs.
                let scores = attack.scores(&members, seed, coins.randomness(number)?, &mut || true)?;
                match progress.lock().is_ok_and(|mut progress| progress.advance()) {
                    true => scores.first().copied().ok_or(AuditError::Stopped),
                    false => Err(AuditError::Stopped),
                }
            })
            .collect::<Result<_, _>>()?;
        let (pilot, rest) = scores.split_at(scores.len() / 2);
        let bounds = [Family::approximate(delta), Family::gaussian(delta)].into_iter().map(|family| {
            let threshold = best_threshold(pilot, &family, self.options.confidence).unwrap_or(0.0);
            many_runs(rest, &[threshold], &family, self.options.confidence).attack(
                Observation::FinalModel,
                1,
                runs,
            )
        });
        Ok(bounds.collect())
    }

    fn final_model<'s>(&'s self, synthetic: &'s Synthetic, workers: usize) -> FinalModel<'s> {
        let run = &self.run.resolved;
        FinalModel { subject: self.subject, run, records: self.records, synthetic, workers }
    }
}

/// The probability that the bound of the step audit does not hold.
fn step_level(confidence: Confidence) -> f64 {
    (1.0 - confidence.get()).min(0.001)
}
