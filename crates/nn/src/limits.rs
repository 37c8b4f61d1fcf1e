//! How many records, bags and slots are computed together.

use crate::network::{Action, Network, Node};
use crate::tape::Tape;

/// The size of chunks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The largest number of records in a chunk.
    pub(crate) records: usize,
    /// The largest number of bags in a chunk.
    pub(crate) bags: usize,
    /// The largest number of gradients in a slot: records, times views.
    pub(crate) most: usize,
}

impl Limits {
    /// The size of chunks: values, gradients, buffers of layers and written-out gradients fit into twice the second-level cache plus as much
    /// memory as the packed weights take, because every chunk reads these weights once.
    pub(crate) fn new(network: &Network, most: usize) -> Limits {
        let packed = |node: &Node| match &node.action {
            Action::Operation { operation, .. } => operation.packed_size(node.params.len()),
            _ => 0,
        };
        let memory = 2 * second_level_cache() + 4 * network.nodes.iter().map(packed).sum::<usize>();
        let written = written_size(network, most);
        let record = Tape::size(network, network.input().steps()) + written / most;
        let records = (memory / (4 * record).max(1)).clamp(1, 256);
        let bags = (memory / (4 * written).max(1)).clamp(1, records);
        Limits { records, bags, most }
    }

    /// How many slots are added up in single precision before the sum moves to double precision: enough that the move takes about two
    /// hundredths of the time of the piece (a parameter costs some 160 operations), and at most 256, to keep [rounding](crate::cut::rounding) small. Bags take
    /// more time than records, so that fewer of them are enough.
    pub(crate) fn piece(self, network: &Network) -> usize {
        let enough = 8000.0 * network.layout().len() as f64 / network.operations().max(1.0);
        match self.most {
            1 => (enough.min(256.0) as usize).clamp(self.records, 256),
            _ => (enough.min(128.0) as usize).clamp(self.records.min(128), 128),
        }
    }

    /// Whether every slot fits into a chunk. Otherwise each slot is run alone, in as many chunks as it needs.
    pub(crate) fn whole_slots(self) -> bool {
        self.most <= self.records
    }

    /// Bytes of the values, gradients and buffers of one worker, in double precision, which cannot overflow.
    pub(crate) fn memory(self, network: &Network) -> f64 {
        let tape = Tape::size(network, network.input().steps()) as f64 * self.records as f64;
        4.0 * (tape + written_size(network, self.most) as f64 * self.bags as f64)
    }
}

/// Floats of the gradients of one bag that are written out.
fn written_size(network: &Network, most: usize) -> usize {
    let written = |node: &Node| {
        node.trained().map_or(0, |(_, parameters)| parameters.written_sizes(most).iter().sum::<usize>())
    };
    network.nodes.iter().map(written).sum()
}

/// Bytes of the second-level cache; a mebibyte if it is unknown.
fn second_level_cache() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index2/size").unwrap_or_default();
    let text = text.trim();
    let (digits, unit) = match text.strip_suffix('K') {
        Some(digits) => (digits, 1 << 10),
        None => (text.strip_suffix('M').unwrap_or(text), 1 << 20),
    };
    digits.parse::<usize>().map_or(1 << 20, |size| (size * unit).clamp(1 << 18, 1 << 24))
}
