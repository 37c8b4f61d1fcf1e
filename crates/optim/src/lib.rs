//! What may happen after the noise: optimizers as chains of transforms, schedules, averages.
#![forbid(unsafe_code)]
