//! Which parameters of a pre-trained model are trained.

use std::fmt;
use std::str::FromStr;

use crate::error::NetworkError;

/// The part of a pre-trained model that is trained; everything else is frozen.
///
/// ```
/// use sordino_nn::pretrained::TrainedPart;
///
/// let part: TrainedPart = "lora,rank=8".parse()?;
/// assert_eq!(part, TrainedPart::Lora { rank: 8, alpha: 8.0 });
/// assert_eq!(part.to_string(), "lora,rank=8,alpha=8");
/// # Ok::<(), sordino_nn::NetworkError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TrainedPart {
    /// `head`: the new layers at the end.
    Head,
    /// `lora,rank=8,alpha=16`: the head, and [adapters](crate::layers::Lora) in every attention layer. By default `alpha` is the
    /// rank, so that the adapters are not scaled.
    Lora {
        /// The rank of the adapters.
        rank: usize,
        /// Adapters are multiplied by `alpha / rank`.
        alpha: f32,
    },
    /// `last,layers=2`: the head and the last transformer layers.
    Last {
        /// The number of transformer layers.
        layers: usize,
    },
    /// `all`: everything.
    All,
}

impl FromStr for TrainedPart {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<TrainedPart, NetworkError> {
        parse(text).ok_or_else(|| {
            NetworkError::Description(format!(
                "the trained part must be head, lora,rank=8 (with alpha=16 if wanted), last,layers=2 or all, got {text}"
            ))
        })
    }
}

fn parse(text: &str) -> Option<TrainedPart> {
    let mut words = text.split(',');
    let name = words.next()?;
    let mut options: Vec<(&str, &str)> = words.map(|word| word.split_once('=')).collect::<Option<_>>()?;
    let mut take = |key: &str| {
        let place = options.iter().position(|(name, _)| *name == key)?;
        Some(options.swap_remove(place).1)
    };
    let part = match name {
        "head" => TrainedPart::Head,
        "all" => TrainedPart::All,
        "last" => TrainedPart::Last { layers: take("layers")?.parse().ok()? },
        "lora" => {
            let rank: usize = take("rank")?.parse().ok()?;
            let alpha = take("alpha").map_or(Some(rank as f32), |alpha| alpha.parse().ok())?;
            TrainedPart::Lora { rank, alpha }
        }
        _ => return None,
    };
    options.is_empty().then_some(part)
}

impl fmt::Display for TrainedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrainedPart::Head => write!(f, "head"),
            TrainedPart::Lora { rank, alpha } => write!(f, "lora,rank={rank},alpha={alpha}"),
            TrainedPart::Last { layers } => write!(f, "last,layers={layers}"),
            TrainedPart::All => write!(f, "all"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_survive_their_text() {
        for text in ["head", "lora,rank=4,alpha=16", "lora,rank=4,alpha=0.5", "last,layers=3", "all"] {
            assert_eq!(text.parse::<TrainedPart>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_refused_with_the_permitted_ones() {
        for text in [
            "",
            "heads",
            "lora",
            "lora,rank=x",
            "lora,rank=2,rank=3",
            "last",
            "last,layers=-1",
            "all,layers=2",
        ] {
            let error = text.parse::<TrainedPart>().unwrap_err().to_string();
            assert!(error.contains("last,layers=2") && error.ends_with(text), "{error}");
        }
    }
}
