//! Several runs on the same data: records are encoded once for all runs that read them in the same way.

use std::sync::{Arc, Mutex, PoisonError};

use sordino_data::Dataset;

use crate::{PricedRun, ResolvedModel, Run, RunData, TrainError};

/// The data of several runs. The outputs of frozen layers and fixed transforms are kept until a run needs different ones.
pub struct SeveralRuns<'a> {
    data: &'a RunData,
    last: Mutex<Option<Arc<Encoded>>>,
}

/// Training and test records as this model reads them.
struct Encoded {
    model: ResolvedModel,
    train: Dataset,
    test: Option<Dataset>,
}

impl<'a> SeveralRuns<'a> {
    /// Runs on this data.
    pub fn new(data: &'a RunData) -> Self {
        Self { data, last: Mutex::new(None) }
    }

    /// Calls `f` with a run in memory.
    ///
    /// # Errors
    /// Records that the model cannot read, and the errors of `f`.
    pub fn run<T>(
        &self,
        priced: &PricedRun,
        f: impl FnOnce(Run<'_>) -> Result<T, TrainError>,
    ) -> Result<T, TrainError> {
        match self.encoded(&priced.resolved.model)?.as_deref() {
            Some(Encoded { train, test, .. }) => {
                f(priced.run(train, test.as_ref().or(self.data.test.as_ref()), None))
            }
            None => f(priced.run(&self.data.train, self.data.test.as_ref(), None)),
        }
    }

    /// The data as this model reads it; none if it reads the records themselves. Other threads wait, because they probably need the same data.
    fn encoded(&self, model: &ResolvedModel) -> Result<Option<Arc<Encoded>>, TrainError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = last.as_ref().filter(|known| known.model.reads_as(model)) {
            return Ok(Some(known.clone()));
        }
        let Some(train) = model.encode(&self.data.train)? else { return Ok(None) };
        // Frees the memory before the next outputs are computed.
        *last = None;
        let test = self.data.test.as_ref().map(|test| model.encode(test)).transpose()?.flatten();
        let encoded = Arc::new(Encoded { model: model.clone(), train, test });
        *last = Some(encoded.clone());
        Ok(Some(encoded))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use sordino_data::Labels;
    use sordino_nn::Shape;

    use super::*;
    use crate::{DataDescription, DataFacts, Settings, price, resolve};

    /// 40 images of 16 x 16 pixels, of which 10 are test records.
    fn images() -> RunData {
        let some = |first: usize, count: usize| {
            let pixels = (first * 256..(first + count) * 256).map(|i| ((i * 7919 % 251) as f32) / 251.0);
            let classes: Vec<u32> = (0..count as u32).map(|i| i % 2).collect();
            let shape = Shape::Image { channels: 1, height: 16, width: 16 };
            Dataset::from_flat(pixels.collect(), shape, Labels::classes(&classes, 2)).unwrap()
        };
        let (train, test) = (some(0, 30), Some(some(30, 10)));
        let description = DataDescription::public(DataFacts::new(&train, test.as_ref()), 30);
        RunData { train, test, description }
    }

    fn priced(data: &RunData, features: &str, learning_rate: f64) -> PricedRun {
        let settings = format!(
            "model = \"logistic\"\nfeatures = \"{features}\"\nepsilon = 1\ndelta = 1e-5\nmax_grad_norm = 1\nsteps = 3\n\
             batch_size = 10\nlearning_rate = {learning_rate}\nseed = 1"
        );
        let settings = Settings::parse(&settings).unwrap();
        price(resolve(&settings, &data.description).unwrap(), None).unwrap()
    }

    #[test]
    fn runs_that_read_the_same_features_share_them_and_have_the_same_results() {
        let data = images();
        let runs = SeveralRuns::new(&data);
        let ending = |run: Run<'_>| run.begin(&AtomicBool::new(false), &mut ());
        let mut encoded = Vec::new();
        for (features, rate) in
            [("scattering", 0.1), ("scattering", 0.2), ("none", 0.1), ("scattering,mirror=true", 0.1)]
        {
            let priced = priced(&data, features, rate);
            let shared = runs.run(&priced, ending).unwrap();
            let alone = ending(priced.run(&data.train, data.test.as_ref(), None)).unwrap();
            assert_eq!((shared.params, shared.score), (alone.params, alone.score), "{features} {rate}");
            encoded.push(runs.encoded(&priced.resolved.model).unwrap());
        }
        let [Some(first), Some(second), None, Some(other)] = &encoded[..] else { panic!("not as expected") };
        assert!(Arc::ptr_eq(first, second) && !Arc::ptr_eq(first, other));
    }
}
