//! `/live`, `/ready` and `/metrics`.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, serve};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::OperatorError;
use super::context::Context;

pub struct Probes {
    pub context: Arc<Context>,
    /// Whether every cache has listed once.
    pub is_synced: Box<dyn Fn() -> bool + Send + Sync>,
}

pub async fn bind(address: SocketAddr) -> Result<TcpListener, OperatorError> {
    TcpListener::bind(address).await.map_err(|source| OperatorError::Listen { address, source })
}

pub async fn run(listener: TcpListener, probes: Probes, shutdown: CancellationToken) {
    let routes = Router::new()
        .route("/live", get(live))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .with_state(Arc::new(probes));
    if let Err(error) = serve(listener, routes).with_graceful_shutdown(shutdown.cancelled_owned()).await {
        tracing::error!(%error, "probes and metrics are not served any more");
    }
}

/// Answers as long as the runtime turns.
async fn live() -> &'static str {
    "live\n"
}

/// A follower that is warm is ready; neither leadership nor the database are part of it.
async fn ready(State(probes): State<Arc<Probes>>) -> Response {
    if (probes.is_synced)() {
        "ready\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the first lists are not complete\n").into_response()
    }
}

async fn metrics(State(probes): State<Arc<Probes>>) -> Response {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

    match probes.context.metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
