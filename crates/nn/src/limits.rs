//! How many records, bags and slots are computed together.

use crate::network::{Action, Network, Node};
use crate::tape::Tape;

/// The size of chunks.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// In ascending order; only one if records are not sequences.
    pub(crate) classes: Vec<LengthClass>,
    /// The largest number of gradients in a slot: records, times views.
    pub(crate) most: usize,
}

/// Slots whose longest records have similar lengths. A chunk holds slots of one class only, so a chunk of short records can hold many of them.
///
/// The class of a slot depends on its own records alone. So does the way in which norms are computed, which depends on the class.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LengthClass {
    /// The largest number of steps of a record.
    pub(crate) steps: usize,
    /// The largest number of records in a chunk.
    pub(crate) records: usize,
    /// The largest number of bags in a chunk.
    pub(crate) bags: usize,
}

/// Records up to this length are in the first class. The bound of each class is twice that of the previous one.
const SHORT: usize = 8;

/// The limit on the number of sequences in a piece is at least this. The estimate in [`Limits::piece`] assumes the longest sequences; most are
/// shorter and take less time.
const SEQUENCES: usize = 64;

impl Limits {
    /// The size of chunks: values, gradients, buffers of layers and written-out gradients fit into twice the second-level cache plus as much
    /// memory as the packed weights take, because every chunk reads these weights once. A chunk has at least as many records as a recurrent
    /// layer needs for its products.
    pub(crate) fn new(network: &Network, most: usize) -> Limits {
        let packed = |node: &Node| match &node.action {
            Action::Operation { operation, .. } => operation.packed_size(node.params.len()),
            _ => 0,
        };
        let enough = |node: &Node| match &node.action {
            Action::Operation { operation, .. } => operation.enough_records(),
            _ => 1,
        };
        let enough = network.nodes.iter().map(enough).max().unwrap_or(1);
        let memory = 2 * second_level_cache() + 4 * network.nodes.iter().map(packed).sum::<usize>();
        let class = |steps: usize| {
            let written = written_size(network, most, steps);
            let record = Tape::sizes(network, steps).sum::<usize>() + written / most;
            let records = (memory / (4 * record).max(1)).clamp(enough, 256);
            let bags = (memory / (4 * written).max(1)).clamp(enough, records);
            LengthClass { steps, records, bags }
        };
        let longest = network.input().steps();
        let shorter = std::iter::successors(Some(SHORT), |steps| Some(2 * steps));
        let classes = shorter.take_while(|steps| *steps < longest).chain([longest]).map(class).collect();
        Limits { classes, most }
    }

    /// The class of slots whose longest record has this many steps.
    pub(crate) fn class_of(&self, steps: usize) -> usize {
        self.classes.partition_point(|class| class.steps < steps).min(self.classes.len() - 1)
    }

    /// The class of the longest records, whose chunks are the smallest.
    fn longest(&self) -> LengthClass {
        self.classes[self.classes.len() - 1]
    }

    /// The largest number of records in a chunk.
    pub(crate) fn most_records(&self) -> usize {
        self.classes.iter().map(|class| class.records).max().unwrap_or(1)
    }

    /// How many slots are added up in single precision before the sum moves to double precision: enough that the move takes about two
    /// hundredths of the time of the piece (a parameter costs some 160 operations), and at most 256, to keep [rounding](crate::cut::rounding) small. Bags take
    /// more time than records, so that fewer of them are enough.
    pub(crate) fn piece(&self, network: &Network) -> usize {
        let enough = 8000.0 * network.layout().len() as f64 / network.operations().max(1.0);
        let greatest = if self.most == 1 { 256 } else { 128 };
        let least = self.longest().records.max(if self.classes.len() > 1 { SEQUENCES } else { 1 });
        (enough.min(256.0) as usize).clamp(least.min(greatest), greatest)
    }

    /// Whether every slot of a class fits into a chunk. Otherwise each slot is run alone, in as many chunks as it needs.
    pub(crate) fn whole_slots(&self, class: usize) -> bool {
        self.most <= self.classes[class].records
    }

    /// Bytes of the values, gradients and buffers of one worker, in double precision, which cannot overflow.
    pub(crate) fn memory(&self, network: &Network) -> f64 {
        // A buffer is as large as the class that needs most of it.
        let mut floats: Vec<f64> = Vec::new();
        for class in &self.classes {
            let tape = Tape::sizes(network, class.steps).map(|size| size as f64 * class.records as f64);
            let written = written_size(network, self.most, class.steps) as f64 * class.bags as f64;
            let of_class: Vec<f64> = tape.chain([written]).collect();
            floats.resize(of_class.len(), 0.0);
            floats.iter_mut().zip(of_class).for_each(|(most, size)| *most = most.max(size));
        }
        4.0 * floats.iter().sum::<f64>()
    }
}

/// Floats of the gradients of one bag that are written out, if its records have at most this many steps.
fn written_size(network: &Network, most: usize, steps: usize) -> usize {
    let written = |node: &Node| {
        let steps = steps + network.input_of(node).extra;
        node.trained()
            .map_or(0, |(_, parameters)| parameters.written_sizes(most, steps).iter().sum::<usize>())
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
