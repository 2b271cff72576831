//! Fresh connections to a store, for whoever lost one and for the recovery agent.

use assent_kind::Kind;
use assent_link::{Address, LinkConfig};
use assent_xa::{Connector, Native, Resource};

use super::Remote;
use super::replies::native;

/// Opens connections to one registered store.
#[derive(Debug)]
pub struct RemoteConnector {
    name: String,
    address: Address,
    config: LinkConfig,
}

impl RemoteConnector {
    /// The store of this registered name.
    #[must_use]
    pub fn new(name: &str, address: Address, config: LinkConfig) -> Self {
        Self { name: name.to_owned(), address, config }
    }
}

impl Connector for RemoteConnector {
    fn name(&self) -> &str {
        &self.name
    }

    fn place(&self) -> String {
        self.address.to_string()
    }

    fn connect(&self) -> Result<Box<dyn Resource>, (Kind, Native)> {
        let mut remote = Remote::new(&self.name, self.address.clone(), self.config.clone());
        match remote.connected() {
            Ok(_) => Ok(Box::new(remote)),
            Err(error) => Err((error.kind(), native(error.kind().name(), &error.to_string()))),
        }
    }
}
