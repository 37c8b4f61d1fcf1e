//! Attacks on the final model: does the loss of a synthetic record show whether it was a member?
//!
//! Synthetic records with random labels are added to public ones. Each is a member with probability 1/2. The score of a record is the
//! decrease of its loss from the initial model to the final one.

use std::ops::Range;

use sordino_nn::{NetworkError, Params, Pass};
use sordino_privacy::{Gradients, Randomness, Sum, WeightRule};
use sordino_train::{NetworkGradients, ResolvedSettings};

use crate::{
    AuditError, Canaries, Mechanism, Scored, Subject, VaultMechanism,
    synthetic::{Background, Synthetic},
};

/// Public records, and synthetic records after them, of which some are members. The slots of the others are empty.
struct WithSynthetic<'d> {
    public: NetworkGradients<'d>,
    synthetic: NetworkGradients<'d>,
    members: Vec<bool>,
}

impl Gradients for WithSynthetic<'_> {
    type Point = Params;
    type Error = NetworkError;

    fn records(&self) -> usize {
        self.public.records() + self.members.len()
    }

    fn dimension(&self) -> usize {
        self.public.dimension()
    }

    fn trainable(&self) -> Vec<Range<usize>> {
        self.public.trainable()
    }

    fn layers(&self) -> usize {
        self.public.layers()
    }

    fn rounding(&self, differences: bool) -> f64 {
        self.public.rounding(differences)
    }

    fn pass(
        &mut self,
        at: &Params,
        anchor: Option<&Params>,
        chosen: &[usize],
        rule: Option<&WeightRule<'_>>,
        key: [u8; 32],
        sums: &mut [Sum],
    ) -> Result<(), NetworkError> {
        let records = self.public.records();
        let (public, synthetic) = chosen.split_at(chosen.partition_point(|&slot| slot < records));
        let members: Vec<usize> =
            synthetic.iter().map(|slot| slot - records).filter(|&slot| self.members[slot]).collect();
        let mut others: Vec<Sum> = sums.to_vec();
        self.public.pass(at, anchor, public, rule, key, sums)?;
        self.synthetic.pass(at, anchor, &members, rule, key, &mut others)?;
        for (sum, other) in sums.iter_mut().zip(others) {
            // Exact: both are multiples of the step of the sum.
            sum.values.iter_mut().zip(other.values).for_each(|(sum, other)| *sum += other);
        }
        Ok(())
    }
}

/// A run on public and synthetic records.
pub(crate) struct FinalModel<'a> {
    pub(crate) subject: Subject<'a>,
    pub(crate) run: &'a ResolvedSettings,
    pub(crate) records: Background<'a>,
    pub(crate) synthetic: &'a Synthetic,
    /// The number of threads of the engine.
    pub(crate) workers: usize,
}

impl FinalModel<'_> {
    /// Trains with these members among the synthetic records, and scores all of them.
    pub(crate) fn scores(
        &self,
        members: &[bool],
        seed: u64,
        randomness: Randomness,
        progress: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Scored>, AuditError> {
        let engine = || self.run.engine(Some(self.workers));
        let (public_engine, synthetic_engine) = (engine()?, engine()?);
        let public = self.records.checked(self.run, &public_engine)?;
        let synthetic = self.synthetic.background().checked(self.run, &synthetic_engine)?;
        let initial = self.run.model.initial(&self.run.model.network()?, seed)?;
        let gradients = WithSynthetic {
            public: NetworkGradients::new(public_engine, public),
            synthetic: NetworkGradients::new(synthetic_engine, synthetic),
            members: members.to_vec(),
        };
        let canaries = Canaries::with_norms(Vec::new(), 1, 0);
        let mut mechanism =
            VaultMechanism::new(self.subject, gradients, true, canaries, initial.clone(), randomness, false)?;
        while mechanism.step()?.is_some() {
            if !progress() {
                return Err(AuditError::Stopped);
            }
        }
        let (before, after) = (self.losses(&initial)?, self.losses(&mechanism.model())?);
        let scores = before.into_iter().zip(after).zip(members);
        Ok(scores.map(|((before, after), &member)| Scored { score: before - after, member }).collect())
    }

    fn losses(&self, at: &Params) -> Result<Vec<f64>, AuditError> {
        let mut engine = self.run.engine(Some(self.workers))?;
        let records = self.synthetic.background().checked(self.run, &engine)?;
        let chosen: Vec<usize> = (0..self.synthetic.background().count).collect();
        let mut sums = [vec![0.0; engine.network().layout().len()]];
        Ok(engine.pass(&Pass::new(at, &records, &chosen), &mut sums)?.losses)
    }
}
