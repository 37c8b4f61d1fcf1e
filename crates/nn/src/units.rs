//! Units of privacy: which records belong together.

/// The records of each unit of privacy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Units {
    members: Vec<usize>,
    starts: Vec<usize>,
    most: usize,
}

impl Units {
    /// Units with these records.
    pub fn new(members: &[Vec<usize>]) -> Units {
        let most = members.iter().map(Vec::len).max().unwrap_or(0);
        let mut starts = vec![0];
        for unit in members {
            starts.push(starts[starts.len() - 1] + unit.len());
        }
        Units { members: members.concat(), starts, most }
    }

    /// The number of units.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The records of a unit.
    pub fn members(&self, unit: usize) -> &[usize] {
        &self.members[self.starts[unit]..self.starts[unit + 1]]
    }

    /// The largest number of records of a unit.
    pub fn most(&self) -> usize {
        self.most
    }
}
