//! Accountants by name, and the guarantees that they compute.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    AccountingError, Delta, Epsilon, Plan, Relation, concentrated, gdp, participation, pld, pld::GroupSize,
    rdp,
};

/// The method that computes the epsilon of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Accountant {
    /// Privacy loss distributions: a tight upper and a tight lower bound.
    #[default]
    Pld,
    /// Renyi divergences: an upper bound for almost every plan, a few per cent above the exact epsilon.
    Rdp,
    /// The central limit theorem: an approximation, not a bound.
    GdpClt,
    /// Zero-concentrated differential privacy, without amplification by sampling.
    Zcdp,
    /// Truncated concentrated differential privacy.
    Tcdp,
    /// For releases that depend on all earlier batches: amplification by sampling until a record's first participation.
    FirstParticipation,
}

impl Accountant {
    /// All accountants.
    pub const ALL: [Self; 6] =
        [Self::Pld, Self::Rdp, Self::GdpClt, Self::Zcdp, Self::Tcdp, Self::FirstParticipation];

    /// The name, as in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pld => "pld",
            Self::Rdp => "rdp",
            Self::GdpClt => "gdp-clt",
            Self::Zcdp => "zcdp",
            Self::Tcdp => "tcdp",
            Self::FirstParticipation => "first-participation",
        }
    }

    /// The method in a few words.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Pld => "privacy loss distributions, composed numerically",
            Self::Rdp => "Renyi differential privacy",
            Self::GdpClt => "the central limit theorem of Gaussian differential privacy",
            Self::Zcdp => "zero-concentrated differential privacy, without amplification by sampling",
            Self::Tcdp => "truncated concentrated differential privacy",
            Self::FirstParticipation => "amplification by sampling until a record's first participation",
        }
    }

    /// Whether its epsilon is a proved upper bound.
    pub const fn proves(self) -> bool {
        !matches!(self, Self::GdpClt)
    }

    /// The guarantee of a plan at this delta.
    ///
    /// ```
    /// use sordino_accounting::{Accountant, Delta, NoiseMultiplier, Plan, SamplingRate, Steps};
    ///
    /// let plan = Plan::dp_sgd(NoiseMultiplier::new(1.0)?, SamplingRate::new(0.01)?, Steps::new(1000)?);
    /// let guarantee = Accountant::Pld.price(&plan, Delta::new(1e-5)?)?;
    /// assert!(guarantee.proved() && guarantee.epsilon.get() < 2.0);
    /// # Ok::<(), sordino_accounting::AccountingError>(())
    /// ```
    ///
    /// # Errors
    /// The plan has an entry that this accountant cannot bound, or a setting outside its numerical range.
    pub fn price(self, plan: &Plan, delta: Delta) -> Result<Guarantee, AccountingError> {
        let (epsilon, epsilon_lower) = match self {
            Self::Pld => {
                let bracket = pld::epsilon(plan, delta)?;
                // With capped or rotating batches only the upper bound is known.
                (bracket.upper, plan.is_tight().then_some(bracket.lower))
            }
            Self::Rdp => (rdp::epsilon(plan, delta)?, None),
            Self::GdpClt => (gdp::epsilon(plan, delta)?, None),
            Self::Zcdp => (concentrated::zcdp_epsilon(plan, delta)?, None),
            Self::Tcdp => (concentrated::tcdp_epsilon(plan, delta)?, None),
            Self::FirstParticipation => (participation::epsilon(plan, delta)?, None),
        };
        Ok(Guarantee { epsilon, epsilon_lower, delta, accountant: self, relation: plan.relation() })
    }

    /// The guarantee of a plan at this delta for a group of records.
    ///
    /// # Errors
    /// Those of [`price`](Self::price), and groups of several records with another accountant than `pld`.
    pub fn price_for_group(
        self,
        plan: &Plan,
        group: GroupSize,
        delta: Delta,
    ) -> Result<Guarantee, AccountingError> {
        if group == GroupSize::ONE {
            return self.price(plan, delta);
        }
        if self != Self::Pld {
            return Err(AccountingError::Unsupported {
                accountant: self.name(),
                entry: format!("a group of {} records", group.get()),
                reason: "only the accountant pld prices groups".to_owned(),
                instead: "use {accountant=pld}",
            });
        }
        let bracket = pld::epsilon_for_group(plan, group, delta)?;
        // A lower bound of 0 is trivial.
        let epsilon_lower = (bracket.lower.get() > 0.0).then_some(bracket.lower);
        Ok(Guarantee {
            epsilon: bracket.upper,
            epsilon_lower,
            delta,
            accountant: self,
            relation: plan.relation(),
        })
    }
}

impl fmt::Display for Accountant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Accountant {
    type Err = AccountingError;

    fn from_str(text: &str) -> Result<Self, AccountingError> {
        Self::ALL.into_iter().find(|a| a.name() == text).ok_or_else(|| AccountingError::OutOfRange {
            what: "accountant",
            range: "one of pld, rdp, gdp-clt, zcdp, tcdp, first-participation",
            got: text.to_owned(),
            hint: "{accountant=pld} is the default and the tightest",
        })
    }
}

/// The result of pricing a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guarantee {
    /// The epsilon to report. It is a proved upper bound, except from accountants that only approximate.
    pub epsilon: Epsilon,
    /// A proved lower bound on the exact epsilon, if the accountant computes one.
    pub epsilon_lower: Option<Epsilon>,
    /// The delta of the guarantee.
    pub delta: Delta,
    /// The accountant that computed it.
    pub accountant: Accountant,
    /// The neighbouring relation of the guarantee.
    pub relation: Relation,
}

impl Guarantee {
    /// Whether epsilon is a proved upper bound.
    pub const fn proved(&self) -> bool {
        self.accountant.proves()
    }
}
