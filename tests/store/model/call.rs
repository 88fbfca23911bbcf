//! The calls that a case is made of.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sluice::domain::lane::{Class, Policy};
use sluice::domain::task::TaskType;
use uuid::Uuid;

pub const CONNECTIONS: usize = 3;
pub const TENANTS: [&str; 3] = ["ann", "bob", "cy"];
/// The third of these workers is of the second pool, the fourth stands for the first pool's Jobs.
pub const WORKERS: usize = 4;
pub const POOLS: [&str; 2] = ["default", "second"];

/// A call, and the connection that makes it.
#[derive(Clone, Debug)]
pub struct Step {
    pub connection: usize,
    pub call: Call,
}

#[derive(Clone, Debug)]
pub enum Call {
    Begin,
    Commit,
    Rollback,
    Enqueue(Vec<Item>),
    EnqueueOne(Item),
    Claim {
        worker: usize,
        want: i32,
        quantum: i32,
    },
    /// Names all that the worker holds but each bit of `forgets`.
    Heartbeat {
        worker: usize,
        forgets: u8,
        one_old_attempt: bool,
    },
    Watch {
        worker: usize,
        also: Pick,
    },
    Report {
        task: Pick,
        stage: Option<&'static str>,
    },
    Complete(Pick),
    CompleteWithNext {
        task: Pick,
        next: Item,
    },
    /// The attempts of the second half are named twice.
    CompleteMany(Vec<Pick>),
    Fail {
        task: Pick,
        class: &'static str,
    },
    Stopped(Pick),
    Release {
        tasks: Vec<Pick>,
        cool_down: bool,
    },
    Cancel {
        task: Pick,
        tenant: Option<usize>,
    },
    CancelLinked {
        task: Pick,
        tenant: Option<usize>,
    },
    CancelActive {
        tenant: Option<usize>,
        class: Option<Class>,
    },
    Retry {
        task: Pick,
        tenant: Option<usize>,
    },
    Suspend {
        task: Pick,
        tenant: Option<usize>,
    },
    Resume {
        task: Pick,
        tenant: Option<usize>,
    },
    SetPriority {
        task: Pick,
        priority: i32,
    },
    SetLane {
        tenant: usize,
        class: Class,
        change: LaneChange,
    },
    HoldLane {
        tenant: usize,
        class: Class,
        policy: Policy,
    },
    HoldAll {
        held: bool,
        pool: Option<usize>,
    },
    SetPool {
        pool: usize,
        change: PoolChange,
    },
    Drain(usize),
    Undrain(usize),
    Adopt {
        worker: usize,
        task: Pick,
    },
    Register(usize),
    Reap,
    Promote,
    Retain,
    TimePasses(Passing),
}

/// What the database's clock would bring; a superuser's update does.
#[derive(Clone, Debug)]
pub enum Passing {
    LeaseRunsOut(Pick),
    DeadlinePasses(Pick),
    BecomesDue(Pick),
    RestEnds {
        tenant: usize,
        is_forgotten: bool,
    },
    KeysAge,
    WorkerIsForgotten(usize),
    /// The partition of an ended task is dropped.
    ArchiveIsDropped(u8),
}

/// One of the tasks that there are when the call is made.
#[derive(Clone, Copy, Debug)]
pub struct Pick {
    pub among: Among,
    pub nth: u8,
    /// Added to the current attempt.
    pub attempt: i32,
}

#[derive(Clone, Copy, Debug)]
pub enum Among {
    Pending,
    Running,
    Stopping,
    Ended,
    All,
    Unknown,
}

#[derive(Clone, Debug)]
pub struct Item {
    pub tenant: usize,
    pub task_type: TaskType,
    pub workspace: bool,
    pub payload: u8,
    pub priority: i32,
    pub delayed: bool,
    pub suspended: bool,
    pub max_attempts: i32,
    pub document: Option<Uuid>,
    pub idempotency: Option<u8>,
    pub exclusive: Option<u8>,
    pub resource: Option<u8>,
    pub is_bad: bool,
}

#[derive(Clone, Debug)]
pub struct LaneChange {
    pub pool: Option<usize>,
    /// `Some(None)` goes back to the pool's default.
    pub cap: Option<Option<i32>>,
    pub weight: Option<i32>,
    pub policy: Option<Policy>,
}

#[derive(Clone, Debug)]
pub struct PoolChange {
    pub ingest_cap: Option<i32>,
    pub ingest_clamp: Option<Option<i32>>,
    pub auto_resume: Option<bool>,
}

impl Call {
    /// The tasks that it names.
    pub fn picks(&self) -> Vec<Pick> {
        match self {
            Call::Report { task, .. } | Call::CompleteWithNext { task, .. } | Call::Fail { task, .. } => vec![*task],
            Call::Complete(task) | Call::Stopped(task) | Call::Adopt { task, .. } => vec![*task],
            Call::Cancel { task, .. } | Call::CancelLinked { task, .. } | Call::Retry { task, .. } => vec![*task],
            Call::Suspend { task, .. } | Call::Resume { task, .. } | Call::SetPriority { task, .. } => vec![*task],
            Call::CompleteMany(tasks) | Call::Release { tasks, .. } => tasks.clone(),
            _ => Vec::new(),
        }
    }

    /// Whether it may lock lanes that its tasks do not name.
    pub fn locks_lanes(&self) -> bool {
        matches!(
            self,
            Call::Claim { .. } | Call::Promote | Call::SetLane { .. } | Call::HoldLane { .. } | Call::SetPool { .. }
        )
    }
}

impl Item {
    pub fn tenant_name(&self) -> String {
        TENANTS[self.tenant].to_owned()
    }

    pub fn workspace_name(&self) -> Option<String> {
        self.workspace.then(|| "w".to_owned())
    }

    /// Items that may meet another one are taken in after the rest of their call.
    pub fn is_keyed(&self) -> bool {
        let names = [self.idempotency, self.exclusive, self.resource];
        let is_document = matches!(self.task_type, TaskType::PdfProcessing | TaskType::Upload);
        self.document.is_some() || names.iter().any(Option::is_some) || is_document
    }

    /// Its place among the items of its call.
    pub fn turn(&self) -> impl Ord + use<> {
        // What is named goes before what is not.
        let first = |n: Option<u8>| (n.is_none(), n);
        let tenant = self.tenant_name();
        let hash = self.exclusive.map(|n| Sha256::digest(format!("{}:{tenant}exclusive-{n}", tenant.len())));
        let hash = hash.map(|hash| hash[..16].to_vec());
        let document = (self.document.is_none(), self.document);
        let has_no_key = self.resource.is_none() && self.idempotency.is_none() && hash.is_none();
        let keys = (first(self.resource), tenant, first(self.idempotency), (hash.is_none(), hash));
        (self.is_keyed(), has_no_key, keys, document)
    }

    /// What two requests with one idempotency key must agree in.
    pub fn content(&self) -> String {
        format!("{} {} {} {:?}", self.task_type, self.workspace, self.payload, self.document)
    }

    pub fn json(&self) -> Value {
        let mut item = json!({
            "type": if self.is_bad { "unheard_of" } else { self.task_type.as_str() },
            "tenant": self.tenant_name(), "payload": {"n": self.payload}, "priority": self.priority,
            "suspended": self.suspended, "max_attempts": self.max_attempts,
            "delay_secs": if self.delayed { 86_400 } else { 0 },
        });
        let fields = item.as_object_mut().expect("an object");
        let mut set = |name: &str, value: Option<Value>| drop(value.map(|value| fields.insert(name.to_owned(), value)));
        set("workspace", self.workspace_name().map(Value::from));
        set("document_id", self.document.map(|id| Value::from(id.to_string())));
        set("idempotency_key", self.idempotency.map(|n| Value::from(format!("key-{n}"))));
        set("exclusive_key", self.exclusive.map(|n| Value::from(format!("exclusive-{n}"))));
        let resource = |n| json!({"cluster": "cluster", "namespace": "n", "name": "r", "uid": format!("uid-{n}")});
        set("resource", self.resource.map(resource));
        item
    }
}

impl LaneChange {
    pub fn pool_name(&self) -> Option<String> {
        self.pool.map(|pool| POOLS[pool].to_owned())
    }

    pub fn json(&self) -> Value {
        let mut settings = serde_json::Map::new();
        let mut set =
            |name: &str, value: Option<Value>| drop(value.map(|value| settings.insert(name.to_owned(), value)));
        set("pool", self.pool_name().map(Value::from));
        set("max_running", self.cap.map(Value::from));
        set("weight", self.weight.map(Value::from));
        set("policy", self.policy.map(|policy| Value::from(policy.as_str())));
        Value::Object(settings)
    }
}

impl PoolChange {
    pub fn json(&self) -> Value {
        let mut settings = serde_json::Map::new();
        let mut set =
            |name: &str, value: Option<Value>| drop(value.map(|value| settings.insert(name.to_owned(), value)));
        set("ingest_cap", self.ingest_cap.map(Value::from));
        set("ingest_clamp", self.ingest_clamp.map(Value::from));
        set("auto_resume", self.auto_resume.map(Value::from));
        Value::Object(settings)
    }
}
