//! Misuses that must not compile, and the uses that do.
//!
//! This use compiles. Each misuse below differs from it in one place:
//!
//! ```
//! use sordino_privacy::*;
//! fn step<G: Gradients>(vault: &mut Vault<G>, at: &G::Point, rule: &ClipRule) -> Option<Release<Vec<f32>>> {
//!     let released = vault.round(|round| {
//!         let sum = round.gradients(at).clipped_sum(rule)?;
//!         round.release(sum)
//!     });
//!     released.ok()??.ok()
//! }
//! ```
//!
//! Reading a bounded sum:
//!
//! ```compile_fail,E0616
//! use sordino_privacy::*;
//! fn step<G: Gradients>(vault: &mut Vault<G>, at: &G::Point, rule: &ClipRule) {
//!     let released = vault.round(|round| {
//!         let sum = round.gradients(at).clipped_sum(rule)?;
//!         let read = sum.value;
//!         round.release(sum)
//!     });
//! }
//! ```
//!
//! ```compile_fail,E0614
//! use sordino_privacy::*;
//! fn step<G: Gradients>(vault: &mut Vault<G>, at: &G::Point, rule: &ClipRule) {
//!     let released = vault.round(|round| {
//!         let sum = round.gradients(at).clipped_sum(rule)?;
//!         let read = (*sum)[0];
//!         round.release(sum)
//!     });
//! }
//! ```
//!
//! Printing a sensitive or bounded value:
//!
//! ```compile_fail,E0277
//! use sordino_privacy::*;
//! fn step<G: Gradients>(vault: &mut Vault<G>, at: &G::Point, rule: &ClipRule) {
//!     let released = vault.round(|round| {
//!         let sum = round.gradients(at).clipped_sum(rule)?;
//!         println!("{sum:?}");
//!         round.release(sum)
//!     });
//! }
//! ```
//!
//! ```compile_fail,E0277
//! fn print(value: sordino_privacy::Sensitive<'_, f64>) {
//!     println!("{value:?}");
//! }
//! ```
//!
//! Copying or reading a sensitive value:
//!
//! ```compile_fail,E0308
//! fn copy<'r>(value: &sordino_privacy::Sensitive<'r, f64>) -> sordino_privacy::Sensitive<'r, f64> {
//!     value.clone()
//! }
//! ```
//!
//! ```compile_fail,E0616
//! fn read(value: sordino_privacy::Sensitive<'_, f64>) -> f64 {
//!     value.value
//! }
//! ```
//!
//! Forging a release or a sensitive value:
//!
//! ```compile_fail,E0451
//! fn forge(value: Vec<f32>) -> sordino_privacy::Release<Vec<f32>> {
//!     sordino_privacy::Release { value, noise_std: 1.0 }
//! }
//! ```
//!
//! ```compile_fail,E0624
//! fn forge(value: Vec<f32>) -> sordino_privacy::Release<Vec<f32>> {
//!     sordino_privacy::Release::new(value, 1.0)
//! }
//! ```
//!
//! ```compile_fail,E0451
//! fn forge<'r>(value: Vec<f32>) -> sordino_privacy::Sensitive<'r, Vec<f32>> {
//!     sordino_privacy::Sensitive { value, brand: Default::default() }
//! }
//! ```
//!
//! Releasing a sum twice:
//!
//! ```compile_fail,E0382
//! use sordino_privacy::*;
//! fn step<G: Gradients>(vault: &mut Vault<G>, at: &G::Point, rule: &ClipRule) {
//!     let released = vault.round(|round| {
//!         let sum = round.gradients(at).clipped_sum(rule)?;
//!         round.release(sum)?;
//!         round.release(sum)
//!     });
//! }
//! ```
//!
//! Keeping a sum beyond its round:
//!
//! ```compile_fail
//! use sordino_privacy::*;
//! fn step<G: Gradients>(vault: &mut Vault<G>, at: &G::Point, rule: &ClipRule) {
//!     let kept = vault.round(|round| round.gradients(at).clipped_sum(rule));
//! }
//! ```
//!
//! Releasing it in a round of another vault:
//!
//! ```compile_fail
//! use sordino_privacy::*;
//! fn step<G: Gradients>(vault: &mut Vault<G>, other: &mut Vault<G>, at: &G::Point, rule: &ClipRule) {
//!     let released = vault.round(|round| {
//!         let sum = round.gradients(at).clipped_sum(rule)?;
//!         other.round(|cheaper| cheaper.release(sum));
//!         Ok::<(), PrivacyError>(())
//!     });
//! }
//! ```
//!
//! Keeping a sensitive value beyond its round, or disclosing it through another vault, so that the disclosure would be missing in the
//! ledger of its own vault:
//!
//! ```compile_fail
//! use sordino_privacy::*;
//! fn step<G: Gradients>(vault: &mut Vault<G>, at: &G::Point) {
//!     let kept = vault.round(|round| round.gradients(at).plain_sum());
//! }
//! ```
//!
//! ```compile_fail
//! use sordino_privacy::*;
//! fn step<G: Gradients>(vault: &mut Vault<G>, other: &mut Vault<G>, at: &G::Point) {
//!     let laundered = vault.round(|round| {
//!         let sum = round.gradients(at).plain_sum()?;
//!         other.round(|open| open.disclose(sum, "not mine"));
//!         Ok::<(), PrivacyError>(())
//!     });
//! }
//! ```
//!
//! Disclosing it through its own vault compiles:
//!
//! ```
//! use sordino_privacy::*;
//! fn step<G: Gradients>(vault: &mut Vault<G>, at: &G::Point) {
//!     let disclosed = vault.round(|round| {
//!         let sum = round.gradients(at).plain_sum()?;
//!         round.disclose(sum, "a reason for the ledger")
//!     });
//! }
//! ```
//!
//! A clip rule that stores norms: a rule is data, and a closure is not accepted.
//!
//! ```compile_fail,E0308
//! use sordino_privacy::*;
//! fn step<G: Gradients>(vault: &mut Vault<G>, at: &G::Point, seen: &std::sync::Mutex<Vec<f64>>) {
//!     let released = vault.round(|round| {
//!         let sum = round.gradients(at).clipped_sum(&|norm: f64| {
//!             seen.lock().unwrap().push(norm);
//!             1.0
//!         })?;
//!         round.release(sum)
//!     });
//! }
//! ```
//!
//! Sealing a vault with a plan that has no price:
//!
//! ```compile_fail,E0308
//! use sordino_privacy::*;
//! fn seal<G: Gradients>(gradients: G, plan: &sordino_accounting::Plan, ledger: &std::path::Path) {
//!     let vault = Vault::seal(gradients, plan, Randomness::seeded(1), ledger);
//! }
//! ```
//!
//! Reading the records through the vault:
//!
//! ```compile_fail,E0616
//! fn peek<G: sordino_privacy::Gradients>(vault: sordino_privacy::Vault<G>) -> G {
//!     vault.gradients
//! }
//! ```
//!
//! Reading the sums of earlier steps:
//!
//! ```compile_fail,E0616
//! fn peek<G: sordino_privacy::Gradients>(vault: sordino_privacy::Vault<G>) {
//!     let hidden = vault.memory;
//! }
//! ```
//!
//! Releasing a sum without its bound, or adding it to a release as if it were public:
//!
//! ```compile_fail,E0308
//! use sordino_privacy::*;
//! fn step<G: Gradients>(vault: &mut Vault<G>, at: &G::Point, rule: &ClipRule) {
//!     let released = vault.round(|round| {
//!         let sum = round.gradients(at).clipped_sum(rule)?;
//!         round.release(sum.unbounded())
//!     });
//! }
//! ```
//!
//! ```compile_fail,E0308
//! use sordino_privacy::*;
//! fn step<G: Gradients>(vault: &mut Vault<G>, at: &G::Point, rule: &ClipRule) {
//!     let released = vault.round(|round| {
//!         let sum = round.gradients(at).clipped_sum(rule)?;
//!         Ok::<_, PrivacyError>(round.noise(1.0)?.plus(1.0, &sum.unbounded(), 0.0))
//!     });
//! }
//! ```
//!
//! Reading the table of a measurement before it has noise, making one, or keeping one:
//!
//! ```compile_fail,E0616
//! fn read(tally: &sordino_privacy::Tally<'_>) -> i64 {
//!     tally.counts[0]
//! }
//! ```
//!
//! ```compile_fail,E0277
//! fn print(tally: &sordino_privacy::Tally<'_>) {
//!     println!("{tally:?}");
//! }
//! ```
//!
//! ```compile_fail,E0624
//! fn forge() {
//!     let tally = sordino_privacy::Tally::new(10, 10);
//! }
//! ```
//!
//! ```compile_fail
//! use sordino_privacy::*;
//! struct Keeps<'m>(Option<&'m mut Tally<'m>>);
//! impl<'m> Outcomes for Keeps<'m> {
//!     type Point = ();
//!     type Error = std::convert::Infallible;
//!     fn slots(&self) -> usize { 1 }
//!     fn cells(&self) -> usize { 1 }
//!     fn tally(&mut self, _: &(), tally: &mut Tally<'_>) -> Result<(), Self::Error> {
//!         self.0 = Some(tally);
//!         Ok(())
//!     }
//! }
//! ```
//!
//! Adding to it compiles:
//!
//! ```
//! use sordino_privacy::*;
//! struct Adds;
//! impl Outcomes for Adds {
//!     type Point = ();
//!     type Error = std::convert::Infallible;
//!     fn slots(&self) -> usize { 1 }
//!     fn cells(&self) -> usize { 1 }
//!     fn tally(&mut self, _: &(), tally: &mut Tally<'_>) -> Result<(), Self::Error> {
//!         tally.add(0, 0, 1.0);
//!         Ok(())
//!     }
//! }
//! ```
//!
//! Passing a sum without noise to an optimizer also fails to compile; that test is in `sordino-optim`.
