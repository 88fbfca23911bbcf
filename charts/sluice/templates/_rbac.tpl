{{/* Where tasks and lanes are served: in each watched namespace, or everywhere. */}}
{{- define "sluice.rules.tasks" -}}
# Makes them for rows that were born elsewhere, sets finalizers, deletes them when their time is over.
- apiGroups: [sluice.dev]
  resources: [ingesttasks]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [sluice.dev]
  resources: [tenantlanes]
  verbs: [get, list, watch]
- apiGroups: [sluice.dev]
  resources: [ingesttasks/status, tenantlanes/status]
  verbs: [patch]
# A source that is a ConfigMap is read when its task is taken in.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get]
# For the annotation sluice.dev/tenants. A Role in a namespace may allow to get that namespace itself.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{/* In its own namespace; with all namespaces, a pool elsewhere is told that it is in the wrong one. */}}
{{- define "sluice.rules.pools" -}}
- apiGroups: [sluice.dev]
  resources: [workerpools]
  verbs: [get, list, watch]
- apiGroups: [sluice.dev]
  resources: [workerpools/status]
  verbs: [patch]
{{- end -}}

{{/* The operator's own namespace. */}}
{{- define "sluice.rules.own" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [sluice-operator]
  verbs: [get, patch]
{{ include "sluice.rules.pools" . }}
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
# Whose pods are not ready yet, as a scale-down sees them.
- apiGroups: [apps]
  resources: [replicasets]
  verbs: [get, list, watch]
# The patch is for pod-deletion-cost.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{/* kind, name, namespace (of a Role), labels, subject */}}
{{- define "sluice.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels: {{- .labels | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ .kind }}, name: {{ .name }}}
subjects:
  - {{ toYaml .subject | nindent 4 | trim }}
{{- end -}}
