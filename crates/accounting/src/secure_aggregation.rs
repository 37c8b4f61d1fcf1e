//! Noise that clients add themselves, if the server learns only the sum of their updates.

use std::str::FromStr;

use serde::Serialize;

use crate::{AccountingError, NoiseMultiplier};

/// The clients of a round of secure aggregation: how many begin it, and how many of them may drop out or collude with the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Participants {
    clients: u32,
    dropouts: u32,
    colluding: u32,
}

impl Participants {
    /// `clients` clients begin a round. Up to `dropouts` of them send nothing, and up to `colluding` of the others tell the server their
    /// own noise, or add none.
    ///
    /// # Errors
    /// No client whose noise counts: `dropouts + colluding` must be below `clients`.
    pub fn new(clients: u32, dropouts: u32, colluding: u32) -> Result<Self, AccountingError> {
        match dropouts.checked_add(colluding) {
            Some(lost) if lost < clients => Ok(Self { clients, dropouts, colluding }),
            _ => Err(AccountingError::OutOfRange {
                what: "the number of dropouts and colluding clients together",
                range: "below the number of clients",
                got: format!("{dropouts} + {colluding} of {clients}"),
                hint: "the noise of at least one client must be in the sum and unknown to the server",
            }),
        }
    }

    /// The number of clients that begin a round.
    pub fn clients(&self) -> u32 {
        self.clients
    }

    /// The least number of clients whose noise is in the sum and unknown to the server: `m = clients - dropouts - colluding`.
    pub fn counted(&self) -> u32 {
        self.clients - self.dropouts - self.colluding
    }
}

/// `clients=100,dropouts=10,colluding=5`; the last two are 0 unless they are given.
impl FromStr for Participants {
    type Err = AccountingError;

    fn from_str(text: &str) -> Result<Self, AccountingError> {
        let refuse = || AccountingError::OutOfRange {
            what: "secure aggregation",
            range: "clients=N,dropouts=N,colluding=N, each a whole number",
            got: text.to_owned(),
            hint: "clients=100,dropouts=10 tolerates 10 clients that send nothing",
        };
        let (mut clients, mut dropouts, mut colluding) = (None, None, None);
        for part in text.split(',') {
            let (key, value) = part.split_once('=').ok_or_else(refuse)?;
            let place = match key.trim() {
                "clients" => &mut clients,
                "dropouts" => &mut dropouts,
                "colluding" => &mut colluding,
                _ => return Err(refuse()),
            };
            if place.replace(value.trim().parse::<u32>().map_err(|_| refuse())?).is_some() {
                return Err(refuse());
            }
        }
        Self::new(clients.ok_or_else(refuse)?, dropouts.unwrap_or(0), colluding.unwrap_or(0))
    }
}

/// The noise that each client adds, and the noise of the sum. Both are relative to the clipping norm of an update.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ClientNoise {
    /// The standard deviation of the noise of each client.
    pub each: NoiseMultiplier,
    /// The standard deviation of the noise of the sum, if no client drops out.
    pub without_dropouts: NoiseMultiplier,
}

/// The least noise that each client must add so that the sum has at least the noise multiplier `z` of a plan.
///
/// The sum of independent Gaussians of `m` clients with standard deviation `s` has standard deviation `s sqrt(m)`. So each client adds
/// `s = z / sqrt(m)`, where `m` clients are [counted](Participants::counted) in the worst case. If all `n` clients send their updates, the
/// sum has the noise `z sqrt(n / m)`. This additional noise is the cost of tolerating dropouts and colluding clients.
///
/// **Guarantees.** `each` is rounded up, so that `m each^2 >= z^2`. More noise than a plan states never weakens its guarantee, because it is
/// post-processing.
///
/// **Edge cases.** This is about noise in real arithmetic. A protocol that adds integers needs noise whose sums have a distribution of the
/// same family (Skellam), or a bound for sums of discrete Gaussians (Kairouz, Liu and Steinke 2021).
///
/// # Errors
/// Noise outside the range of a noise multiplier.
///
/// ```
/// use sordino_accounting::{NoiseMultiplier, secure_aggregation::{Participants, client_noise}};
///
/// let noise = client_noise(NoiseMultiplier::new(3.0)?, "clients=110,dropouts=10".parse()?)?;
/// assert!((noise.each.get() - 0.3).abs() < 1e-12);
/// # Ok::<(), sordino_accounting::AccountingError>(())
/// ```
pub fn client_noise(
    multiplier: NoiseMultiplier,
    participants: Participants,
) -> Result<ClientNoise, AccountingError> {
    // A square root, a quotient and this product have a relative error of at most 2^-53 each.
    let each = multiplier.get() / f64::from(participants.counted()).sqrt() * (1.0 + 4.0 * f64::EPSILON);
    Ok(ClientNoise {
        each: NoiseMultiplier::new(each)?,
        without_dropouts: NoiseMultiplier::new(each * f64::from(participants.clients).sqrt())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(z: f64, text: &str) -> ClientNoise {
        client_noise(NoiseMultiplier::new(z).unwrap(), text.parse().unwrap()).unwrap()
    }

    /// By hand: 1 / sqrt(100); 1 / sqrt(81) with a sum of sqrt(100 / 81); 6 / sqrt(9) with a sum of 6 sqrt(25 / 9).
    #[test]
    fn the_noise_of_known_numbers_of_clients() {
        for (z, text, each, all) in [
            (1.0, "clients=100", 0.1, 1.0),
            (1.0, "clients=100,dropouts=19", 1.0 / 9.0, 10.0 / 9.0),
            (6.0, "clients=25,dropouts=10,colluding=6", 2.0, 10.0),
            (2.5, "clients=1", 2.5, 2.5),
        ] {
            let noise = noise(z, text);
            assert!((noise.each.get() - each).abs() < 1e-14, "{text}");
            assert!((noise.without_dropouts.get() - all).abs() < 1e-13, "{text}");
        }
    }

    /// For every choice of clients that drop out or collude, the variances that count add up to at least `z^2`.
    #[test]
    fn the_sum_of_the_survivors_never_has_too_little_noise() {
        for clients in 1..60 {
            for lost in 0..clients {
                let noise = noise(1.3, &format!("clients={clients},dropouts={lost}"));
                let variance = f64::from(clients - lost) * noise.each.get().powi(2);
                assert!((1.69..1.69 * (1.0 + 1e-14)).contains(&variance), "{clients} {lost}");
                let colluding = self::noise(1.3, &format!("clients={clients},colluding={lost}"));
                assert_eq!(colluding, noise);
            }
        }
    }

    #[test]
    fn numbers_that_leave_no_client_are_refused() {
        for (clients, dropouts, colluding) in [(0, 0, 0), (10, 10, 0), (10, 5, 5), (3, u32::MAX, 1)] {
            let error = Participants::new(clients, dropouts, colluding).unwrap_err().to_string();
            assert!(error.contains("must be below the number of clients"), "{error}");
        }
        for text in [
            "",
            "10",
            "clients",
            "clients=x",
            "clients=-1",
            "dropouts=1",
            "clients=9,clients=9",
            "clients=9,late=1",
        ] {
            let error = text.parse::<Participants>().unwrap_err().to_string();
            assert!(error.contains("clients=N,dropouts=N,colluding=N"), "{text}: {error}");
        }
        // A multiplier below the least that is permitted.
        assert!(client_noise(NoiseMultiplier::new(1e-6).unwrap(), "clients=9".parse().unwrap()).is_err());
    }
}
