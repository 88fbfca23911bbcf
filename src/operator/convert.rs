//! Names of the custom resources to names of the domain, and back.

use crate::api::ingest_task as api;
use crate::api::tenant_lane::LaneClass;
use crate::domain::lane::Class;
use crate::domain::status::UiPhase;
use crate::domain::task::{State, TaskType};

pub const fn task_type(task_type: api::TaskType) -> TaskType {
    match task_type {
        api::TaskType::PdfProcessing => TaskType::PdfProcessing,
        api::TaskType::Insert => TaskType::Insert,
        api::TaskType::Upload => TaskType::Upload,
        api::TaskType::Scan => TaskType::Scan,
        api::TaskType::Reindex => TaskType::Reindex,
        api::TaskType::KnowledgeInjection => TaskType::KnowledgeInjection,
        api::TaskType::Deletion => TaskType::Deletion,
        api::TaskType::WorkspaceWipe => TaskType::WorkspaceWipe,
    }
}

pub const fn api_task_type(task_type: TaskType) -> api::TaskType {
    match task_type {
        TaskType::PdfProcessing => api::TaskType::PdfProcessing,
        TaskType::Insert => api::TaskType::Insert,
        TaskType::Upload => api::TaskType::Upload,
        TaskType::Scan => api::TaskType::Scan,
        TaskType::Reindex => api::TaskType::Reindex,
        TaskType::KnowledgeInjection => api::TaskType::KnowledgeInjection,
        TaskType::Deletion => api::TaskType::Deletion,
        TaskType::WorkspaceWipe => api::TaskType::WorkspaceWipe,
    }
}

pub const fn api_state(state: State) -> api::State {
    match state {
        State::Pending => api::State::Pending,
        State::Processing => api::State::Processing,
        State::Stopping => api::State::Stopping,
        State::Completed => api::State::Completed,
        State::Failed => api::State::Failed,
        State::Cancelled => api::State::Cancelled,
    }
}

pub const fn api_ui_phase(phase: UiPhase) -> api::UiPhase {
    match phase {
        UiPhase::Idle => api::UiPhase::Idle,
        UiPhase::Running => api::UiPhase::Running,
        UiPhase::Stopping => api::UiPhase::Stopping,
        UiPhase::Terminal => api::UiPhase::Terminal,
    }
}

pub const fn api_class(class: Class) -> LaneClass {
    match class {
        Class::Ingest => LaneClass::Ingest,
        Class::Lifecycle => LaneClass::Lifecycle,
    }
}
