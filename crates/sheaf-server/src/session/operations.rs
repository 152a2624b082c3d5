//! Operations in progress, for currentOp and killOp.
//!
//! Every connection has one slot; registering an operation writes only that slot. currentOp reads
//! all slots.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sheaf_auth::UserName;
use sheaf_bson::{DocBuf, ErrorCode, RawDoc};
use sheaf_db::OpContext;

use crate::client::Client;
use crate::command_facts::{Command, Kind, Names};
use crate::observe;
use crate::write_gate::WritingMark;

/// A larger command is shown truncated.
const COMMAND_BYTES_SHOWN: usize = 4096;

/// One operation, as currentOp and killOp see it.
#[derive(Clone)]
pub struct Operation {
    /// For killOp.
    pub opid: i32,
    /// Kill flag, counters, progress.
    pub op: Arc<OpContext>,
    /// The command that runs.
    pub command: &'static Command,
    /// `$db`.
    pub db: String,
    /// The command document; a large one is truncated (`$truncated`).
    pub body: DocBuf,
    /// The collection that it names, if any.
    pub collection: Option<String>,
    /// Its session.
    pub lsid: Option<DocBuf>,
    /// The number of its transaction or retryable write, and whether it is a transaction.
    pub number: Option<(i64, bool)>,
    /// The cursor that it continues.
    pub cursor: Option<DocBuf>,
}

/// One connection's slot.
pub struct OperationSlot {
    client: Arc<dyn Client>,
    remote: String,
    app_name: Mutex<String>,
    metadata: Mutex<Option<DocBuf>>,
    user: Mutex<Option<UserName>>,
    current: Mutex<Option<Operation>>,
    writing: WritingMark,
    next_opid: Arc<AtomicI32>,
    ending: Arc<OnceLock<ErrorCode>>,
}

/// The session of an operation, and the number of its transaction or retryable write with whether
/// it is a transaction.
pub struct OperationIds {
    /// `lsid`.
    pub lsid: Option<DocBuf>,
    /// `txnNumber`, and whether `autocommit` came with it.
    pub number: Option<(i64, bool)>,
}

/// The collection that `body` names, in the field that the command's row gives. Other commands show
/// their first field, if it is a string.
fn named_collection(command: &Command, body: RawDoc<'_>) -> Option<String> {
    let value = match command.collection {
        Names::Field(field) => body.get(field)?,
        _ => body.first()?.value(),
    };
    value.as_str().map(str::to_owned)
}

/// All slots.
#[derive(Default)]
pub struct OperationTable {
    slots: Mutex<HashMap<u64, Weak<OperationSlot>>>,
    next_opid: Arc<AtomicI32>,
    next_key: AtomicU64,
    /// Set at shutdown: the code with which operations that begin later are interrupted at once.
    ending: Arc<OnceLock<ErrorCode>>,
}

/// Ends the registration when dropped.
pub struct Registered {
    slot: Arc<OperationSlot>,
}

impl OperationTable {
    /// Creates a slot for a connection. It exists until the connection drops it.
    pub fn connect(&self, client: &Arc<dyn Client>) -> Arc<OperationSlot> {
        let slot = Arc::new(OperationSlot {
            client: client.clone(),
            remote: client.remote(),
            app_name: Mutex::default(),
            metadata: Mutex::default(),
            user: Mutex::default(),
            current: Mutex::default(),
            writing: WritingMark::default(),
            next_opid: self.next_opid.clone(),
            ending: self.ending.clone(),
        });
        let mut slots = self.slots.lock();
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        if key.is_multiple_of(256) {
            slots.retain(|_, slot| slot.strong_count() > 0);
        }
        slots.insert(key, Arc::downgrade(&slot));
        slot
    }

    /// Every connection's slot.
    pub fn slots(&self) -> Vec<Arc<OperationSlot>> {
        self.slots
            .lock()
            .values()
            .filter_map(Weak::upgrade)
            .collect()
    }

    /// Number of reads and writes in progress.
    pub fn running(&self) -> (i32, i32) {
        let (mut readers, mut writers) = (0, 0);
        for slot in self.slots() {
            match slot
                .current
                .lock()
                .as_ref()
                .map(|operation| operation.command.kind)
            {
                Some(Kind::Read) => readers += 1,
                Some(Kind::Write) => writers += 1,
                _ => {}
            }
        }
        (readers, writers)
    }

    /// Whether no connection is marked as writing.
    pub fn nobody_writes(&self) -> bool {
        let slots = self.slots.lock();
        let mut slots = slots.values().filter_map(Weak::upgrade);
        slots.all(|slot| !slot.writing.is_set())
    }

    /// Operations that have run for at least `running_min` and only produce a reply, with the
    /// client that waits for it. Excludes killed operations.
    pub fn awaited(&self, running_min: Duration) -> Vec<(Arc<dyn Client>, Arc<OpContext>)> {
        let slots = self.slots.lock();
        let slots = slots.values().filter_map(Weak::upgrade);
        slots
            .filter_map(|slot| {
                let current = slot.current.lock();
                let operation = current.as_ref()?;
                let awaited = operation.command.only_replies
                    && !operation.op.is_killed()
                    && operation.op.started().elapsed() >= running_min;
                awaited.then(|| (slot.client.clone(), operation.op.clone()))
            })
            .collect()
    }

    /// Interrupts one operation; false if no operation has this id.
    pub fn kill(&self, opid: i32) -> bool {
        for slot in self.slots() {
            if let Some(operation) = &*slot.current.lock()
                && operation.opid == opid
            {
                operation.op.kill(ErrorCode::INTERRUPTED);
                return true;
            }
        }
        false
    }

    /// The user of the connection that runs the operation; `None` if there is no such operation.
    pub fn owner(&self, opid: i32) -> Option<Option<UserName>> {
        self.slots().into_iter().find_map(|slot| {
            let is_it = (slot.current.lock().as_ref()).is_some_and(|one| one.opid == opid);
            is_it.then(|| slot.user())
        })
    }

    /// Interrupts all operations, including those that begin later (shutdown).
    pub fn kill_all(&self, code: ErrorCode) {
        // For an operation that begins concurrently, either this loop sees its slot filled or the
        // operation sees the code.
        let _ = self.ending.set(code);
        for slot in self.slots() {
            if let Some(operation) = &*slot.current.lock() {
                operation.op.kill(code);
            }
        }
    }
}

impl OperationSlot {
    /// Sets the user of the connection.
    pub fn set_user(&self, user: Option<UserName>) {
        *self.user.lock() = user;
    }

    /// The user of the connection.
    pub fn user(&self) -> Option<UserName> {
        self.user.lock().clone()
    }

    /// Shows an operation until the returned guard is dropped.
    pub fn register(
        self: &Arc<Self>,
        op: &Arc<OpContext>,
        command: &'static Command,
        db: &str,
        body: RawDoc<'_>,
        ids: OperationIds,
    ) -> Registered {
        let opid = self.next_opid.fetch_add(1, Ordering::Relaxed) & i32::MAX;
        *self.current.lock() = Some(Operation {
            opid,
            op: op.clone(),
            command,
            db: db.to_owned(),
            body: observe::shown(body, command.sensitive, op.comment(), COMMAND_BYTES_SHOWN),
            collection: named_collection(command, body),
            lsid: ids.lsid,
            number: ids.number,
            cursor: None,
        });
        if let Some(code) = self.ending.get() {
            op.kill(*code);
        }
        Registered { slot: self.clone() }
    }

    /// The mark that this connection writes.
    pub fn writing(&self) -> &WritingMark {
        &self.writing
    }

    /// Shows which cursor the operation continues.
    pub fn set_cursor(&self, description: DocBuf) {
        if let Some(operation) = &mut *self.current.lock() {
            operation.cursor = Some(description);
        }
    }

    /// `client` of the first hello.
    pub fn metadata(&self) -> Option<DocBuf> {
        self.metadata.lock().clone()
    }

    /// Sets `client` of the first hello.
    pub fn set_metadata(&self, metadata: DocBuf) {
        *self.metadata.lock() = Some(metadata);
    }

    /// The operation in progress.
    pub fn current(&self) -> Option<Operation> {
        self.current.lock().clone()
    }

    /// The connection's number in the log.
    pub fn connection_id(&self) -> u64 {
        self.client.id()
    }

    /// `address:port` of the client.
    pub fn client(&self) -> &str {
        &self.remote
    }

    /// The client's application name.
    pub fn app_name(&self) -> String {
        self.app_name.lock().clone()
    }

    /// Sets the application name, from the first hello.
    pub fn set_app_name(&self, name: &str) {
        *self.app_name.lock() = name.to_owned();
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        *self.slot.current.lock() = None;
    }
}
