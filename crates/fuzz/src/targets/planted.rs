//! Faults that the program must find, so that a run without findings means something.

use std::hint::black_box;

use super::Make;
use crate::{Target, container::Container};

pub(super) const ALL: [(&str, Make); 5] = [
    ("planted-panic", || Planted::boxed(|| panic!("planted"))),
    ("planted-stack", || Planted::boxed(|| Ok(deep(u64::MAX) > 0))),
    ("planted-memory", || Planted::boxed(|| Ok(black_box(vec![0_u8; 3 << 30]).is_empty()))),
    ("planted-hang", || Planted::boxed(forever)),
    ("planted-acceptance", || Planted::boxed(|| Err("planted".to_owned()))),
];

struct Planted {
    good: Vec<Vec<u8>>,
    fault: fn() -> Result<bool, String>,
}

impl Planted {
    fn boxed(fault: fn() -> Result<bool, String>) -> Box<dyn Target> {
        Box::new(Self { good: vec![b"good 1\n".to_vec()], fault })
    }
}

impl Target for Planted {
    fn container(&self) -> Container {
        Container::Text
    }

    fn good(&self) -> &[Vec<u8>] {
        &self.good
    }

    /// Accepts every file except those that lack a word of the good one.
    fn read(&mut self, input: &[u8]) -> Result<bool, String> {
        if input.starts_with(b"good") { Ok(true) } else { (self.fault)() }
    }
}

fn deep(levels: u64) -> u64 {
    if levels == 0 { 0 } else { black_box(deep(black_box(levels - 1))) + 1 }
}

fn forever() -> Result<bool, String> {
    while black_box(true) {}
    Ok(true)
}
