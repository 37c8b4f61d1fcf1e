//! Settings made meaningful, once: data, model, plan, terms, learning.

use std::{collections::HashMap, fs, time::Duration};

use sordino_accounting::Plan;
use sordino_algorithms::{Choice, Setting};
use sordino_data::Dataset;
use sordino_privacy::Terms;
use sordino_train::{Learning, Run, RunFolder};

use crate::{
    claim::{Claim, shown},
    data_settings::{Records, last_changed, read},
    learning::learning,
    memory::Footprint,
    models::{Facts, Model},
    pace::Pace,
    problem::Problem,
    protection::{algorithm, asked, clip, refuse_idle, sampling, terms},
    run_files::RunFiles,
    settings::{Clipping, Settings},
    statement::rounded_up,
};

/// A run, ready to start.
pub(crate) struct Experiment {
    /// All settings, with defaults filled in; paths of what the run keeps copies of are relative to its folder.
    pub(crate) settings: Settings,
    pub(crate) files: RunFiles,
    records: Dataset,
    pub(crate) test: Option<Dataset>,
    pub(crate) terms: Terms,
    /// Steps between measurements.
    pub(crate) measure_every: u64,
    pub(crate) facts: Facts,
    model: Model,
    algorithm: Choice,
    setting: Setting,
    learning: Learning,
    pub(crate) footprint: Footprint,
    checkpoint_every: Duration,
}

impl Experiment {
    /// Fills in defaults, reads the data, chooses the model, and prices the plan before a record is used.
    ///
    /// A run that goes on keeps the plan it began with.
    pub(crate) fn prepare(mut settings: Settings, known: Option<&Plan>) -> Result<Self, Problem> {
        settings.check()?;
        let algorithm = algorithm(&mut settings)?;
        refuse_idle(&settings, &algorithm)?;
        let clip = clip(&mut settings, &algorithm)?;
        let asked = asked(&mut settings, &algorithm)?;
        let learning = learning(&mut settings, &algorithm, clip)?;
        let Records { train: records, test, schema } = read(&mut settings)?;
        let facts = Facts::of(&records, test.as_ref().map_or(0, |test| test.len() as u64));
        let name = match &settings.model {
            Some(name) => name.clone(),
            None => Model::default_name(&facts).to_owned(),
        };
        let model = Model::choose(&name, settings.hidden.as_deref(), &facts)?;
        let network = name.ends_with(".toml").then(|| fs::read_to_string(&name)).transpose();
        let network =
            network.map_err(|error| Problem::refused(format!("{name}: {error}"), "is it still there?"))?;
        settings.model = Some(if network.is_some() { RunFiles::NETWORK.to_owned() } else { name });
        let files = RunFiles { schema, network };
        let pace = Pace::new(&mut settings, records.len())?;
        let network = model.network()?;
        let footprint = Footprint::new(network.layout().len(), &learning, &algorithm);
        footprint.check(1)?;
        let mut setting = Setting {
            sampling: sampling(&mut settings, &pace, records.len(), &algorithm)?,
            steps: pace.steps,
            expected_batch_size: pace.batch_size,
            clip,
            layers: (settings.clipping == Some(Clipping::PerLayer)).then_some(network.layers().len()),
            dimension: network.layout().trainable().iter().map(ExactSizeIterator::len).sum(),
            noise_multiplier: None,
            records: records.len() as u64,
            claim: asked,
        };
        let terms = terms(&mut settings, &algorithm, &setting, asked, known)?;
        setting.noise_multiplier =
            terms.plan().and_then(|plan| plan.entries().first()?.releases().first().copied());
        let seconds = *settings.checkpoint_seconds.get_or_insert(10.0);
        let checkpoint_every = Duration::try_from_secs_f64(seconds).map_err(|_| {
            Problem::refused(
                format!("checkpoint_seconds must be a number of at least 0, got {seconds}"),
                "10 loses at most 10 seconds",
            )
        })?;
        let terms = terms.about(&(files.about(&settings) + &last_changed(&settings)));
        Ok(Self {
            records,
            test,
            facts,
            model,
            algorithm,
            terms,
            setting,
            learning,
            footprint,
            measure_every: pace.epoch.max(pace.steps.get() / 20).max(1),
            checkpoint_every,
            settings,
            files,
        })
    }

    /// Hands the run in this folder to `act`, which begins it or goes on with it.
    pub(crate) fn run<R>(&self, folder: &RunFolder, act: impl FnOnce(&Run<'_>) -> R) -> R {
        act(&Run {
            folder,
            network: &|| self.model.network(),
            loss: self.model.loss,
            records: &self.records,
            test: self.test.as_ref(),
            algorithm: &self.algorithm,
            setting: &self.setting,
            terms: &self.terms,
            learning: &self.learning,
            seed: self.settings.seed,
            measure_every: self.measure_every,
            checkpoint_every: self.checkpoint_every,
            notes: &self.notes(),
        })
    }

    /// The settings as the text of `config.toml`.
    pub(crate) fn config(&self) -> String {
        match self.not_private() {
            Some(why) => format!("# NOT PRIVATE: {why}\n{}", self.settings.to_toml()),
            None => self.settings.to_toml(),
        }
    }

    /// What is noted in the file of the weights.
    fn notes(&self) -> HashMap<String, String> {
        let guarantee = match (self.not_private(), self.terms.guarantee()) {
            (None, Some(guarantee)) => format!(
                "({}, {})-differential privacy, {}, for the whole run{}",
                rounded_up(guarantee.epsilon.get()),
                guarantee.delta,
                guarantee.relation,
                if guarantee.epsilon.get() > 10.0 { " (WEAK: little is promised)" } else { "" }
            ),
            (why, _) => format!("NOT PRIVATE: {}", why.unwrap_or_default()),
        };
        let facts = serde_json::to_string(&self.facts).expect("shapes and names are JSON");
        HashMap::from([("guarantee".to_owned(), guarantee), ("facts".to_owned(), facts)])
    }

    /// What to know before it starts, if what is claimed of it is not what is proved.
    pub(crate) fn warning(&self) -> Option<String> {
        let claim = Claim::of(&self.settings, self.terms.plan())?;
        let proved = match (self.not_private(), self.terms.guarantee()) {
            (None, Some(guarantee)) => format!("epsilon {}", rounded_up(guarantee.epsilon.get())),
            _ => "nothing".to_owned(),
        };
        let claimed = shown(claim.epsilon);
        Some(format!("epsilon {claimed} is claimed, {proved} is proved; use {}", claim.instead))
    }

    fn not_private(&self) -> Option<&'static str> {
        let seeded = self.settings.seed.is_some().then_some("noise and batches come from a fixed seed");
        self.algorithm.unprotected().or(seeded)
    }
}
