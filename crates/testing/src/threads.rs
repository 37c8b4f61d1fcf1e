//! Ranks that are threads of one process.

use std::{
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use sordino_privacy::Communicator;

enum Message {
    Numbers(Vec<f32>),
    Bytes(Vec<u8>),
    Values(Vec<f64>),
}

/// A rank that is a thread. Rank 0 is connected to every other rank. When a rank is dropped, the others obtain an error.
pub struct ThreadRank {
    rank: usize,
    size: usize,
    /// How long it waits for another rank.
    patience: Duration,
    /// The other end of each connection: rank 1, 2, ... for rank 0, and rank 0 for every other rank.
    links: Vec<(Sender<Message>, Mutex<Receiver<Message>>)>,
}

/// Calls `f` on this many ranks, each in its own thread, and returns the results of all, in the order of ranks. A rank waits a minute for
/// others.
pub fn on_ranks<T: Send>(size: usize, f: impl Fn(Arc<dyn Communicator>) -> T + Sync) -> Vec<T> {
    on_connected(ThreadRank::connected(size, Duration::from_secs(60)), f)
}

/// Calls `f` on these ranks, each in its own thread, and returns the results of all, in the order of ranks.
pub fn on_connected<T: Send>(
    ranks: Vec<Arc<dyn Communicator>>,
    f: impl Fn(Arc<dyn Communicator>) -> T + Sync,
) -> Vec<T> {
    std::thread::scope(|scope| {
        let f = &f;
        let ranks = ranks.into_iter();
        let threads: Vec<_> = ranks.map(|rank| scope.spawn(move || f(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

impl ThreadRank {
    /// This many connected ranks.
    pub fn connected(size: usize, patience: Duration) -> Vec<Arc<dyn Communicator>> {
        let mut ranks: Vec<ThreadRank> =
            (0..size).map(|rank| ThreadRank { rank, size, patience, links: Vec::new() }).collect();
        for rank in 1..size {
            let ((to, from_first), (to_first, from)) = (channel(), channel());
            ranks[0].links.push((to, Mutex::new(from)));
            ranks[rank].links.push((to_first, Mutex::new(from_first)));
        }
        ranks.into_iter().map(|rank| Arc::new(rank) as Arc<dyn Communicator>).collect()
    }

    fn other(&self, link: usize) -> usize {
        if self.rank == 0 { link + 1 } else { 0 }
    }

    fn send(&self, link: usize, message: Message) -> Result<(), String> {
        self.links[link].0.send(message).map_err(|_| format!("rank {} has ended", self.other(link)))
    }

    fn receive(&self, link: usize) -> Result<Message, String> {
        let receiver = self.links[link].1.lock().unwrap();
        receiver.recv_timeout(self.patience).map_err(|_| format!("no message from rank {}", self.other(link)))
    }

    fn send_to_all(&self, message: impl Fn() -> Message) -> Result<(), String> {
        (0..self.links.len()).try_for_each(|link| self.send(link, message()))
    }
}

const WRONG: &str = "a message of another kind: the ranks do not make the same calls";

impl Communicator for ThreadRank {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn broadcast(&self, numbers: &mut [f32]) -> Result<(), String> {
        if self.rank == 0 {
            return self.send_to_all(|| Message::Numbers(numbers.to_vec()));
        }
        match self.receive(0)? {
            Message::Numbers(sent) if sent.len() == numbers.len() => numbers.copy_from_slice(&sent),
            _ => return Err(WRONG.to_owned()),
        }
        Ok(())
    }

    fn broadcast_bytes(&self, bytes: &mut Vec<u8>) -> Result<(), String> {
        if self.rank == 0 {
            return self.send_to_all(|| Message::Bytes(bytes.clone()));
        }
        match self.receive(0)? {
            Message::Bytes(sent) => *bytes = sent,
            _ => return Err(WRONG.to_owned()),
        }
        Ok(())
    }

    fn sum(&self, values: &mut [f64]) -> Result<(), String> {
        if self.rank > 0 {
            self.send(0, Message::Values(values.to_vec()))?;
            values.fill(0.0);
            return Ok(());
        }
        for link in 0..self.links.len() {
            match self.receive(link)? {
                Message::Values(sent) if sent.len() == values.len() => {
                    values.iter_mut().zip(sent).for_each(|(sum, value)| *sum += value);
                }
                _ => return Err(WRONG.to_owned()),
            }
        }
        Ok(())
    }
}
