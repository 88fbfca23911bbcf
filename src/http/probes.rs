//! `/livez`, `/readyz` and `/metrics`, on a thread of their own: no work delays the answer to a probe.

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// Who is asked.
pub trait Probes: Send + Sync + 'static {
    /// Why a restart would help, if it would.
    fn live(&self) -> Result<(), &'static str>;

    /// Why it should get no work, if it should not.
    fn ready(&self) -> Result<(), &'static str>;

    /// In the text format of OpenMetrics.
    fn metrics(&self) -> Result<String, fmt::Error>;
}

/// Until the process ends.
pub fn serve(listener: TcpListener, probes: Arc<dyn Probes>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name("sluice-probes".to_owned());
    thread.spawn(move || {
        let served = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            axum::serve(listener, router(probes)).await
        });
        if let Err(error) = served {
            tracing::error!(%error, "probes are not answered any more");
        }
    })?;
    Ok(())
}

fn router(probes: Arc<dyn Probes>) -> Router {
    Router::new()
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(probes)
}

async fn live(State(probes): State<Arc<dyn Probes>>) -> Response {
    verdict(probes.live())
}

async fn ready(State(probes): State<Arc<dyn Probes>>) -> Response {
    verdict(probes.ready())
}

fn verdict(verdict: Result<(), &'static str>) -> Response {
    match verdict {
        Ok(()) => "ok\n".into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

async fn metrics(State(probes): State<Arc<dyn Probes>>) -> Response {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match probes.metrics() {
        Ok(text) => ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
