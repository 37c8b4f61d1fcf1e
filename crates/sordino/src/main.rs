//! t
use sordino_accounting::*;
use std::time::Instant;
fn main() {
    for (z,q,t,d) in [(1.1,0.004,15000u64,1e-5),(0.7,0.004,11250,1e-5),(1.0,0.001,1000000,1e-5),(4.0,1024./50000.,10000,1e-5),(0.8,0.05,1000,1e-6),(0.8,0.05,50000,1e-6),(3.0,0.001,1000,1e-6),(0.35,0.01,120,1e-5),(1.0,0.01,1,1e-5),(0.3,0.001,100,1e-7),(2.0,0.2,100,1e-12),(0.1,0.01,100,1e-6),(100.,0.5,100,1e-6),(1e3,0.01,100000,1e-6)] {
        let plan = Plan::dp_sgd(NoiseMultiplier::new(z).unwrap(), SamplingRate::new(q).unwrap(), Steps::new(t).unwrap());
        let s = Instant::now();
        let e = pld::epsilon(&plan, Delta::new(d).unwrap());
        let el = s.elapsed();
        let r = rdp::epsilon(&plan, Delta::new(d).unwrap());
        match e { Ok(e)=> println!("{z} {q} {t} {d}: {:.6} {:.6} rel {:.2e} {el:?}  rdp {:?} {:?}", e.lower.get(), e.upper.get(), e.upper.get()/e.lower.get()-1., r.map(|x|x.get()), s.elapsed()-el), Err(e)=>println!("{z} {q} {t}: {e}  rdp {r:?}")}
    }
    for (rho,mu0) in [(1.0f64,0.8f64),(10.0,0.25),(3.,0.5)] {
    for tt in [100u32,1000,5000] {
    let plan: Plan = (1..=tt).map(|t| Entry::poisson(NoiseMultiplier::new(1.0/(mu0*rho.powf(f64::from(t)/f64::from(tt)))).unwrap(), SamplingRate::new(250./60000.).unwrap(), Steps::new(1).unwrap())).collect();
    let s = Instant::now();
    let e = pld::epsilon(&plan, Delta::new(1.0/600000.).unwrap()).unwrap();
    println!("dyn {rho} {mu0} {tt}: {:.6} {:.6} rel {:.2e} {:?}", e.lower.get(), e.upper.get(), e.upper.get()/e.lower.get()-1., s.elapsed());
    }}
}
