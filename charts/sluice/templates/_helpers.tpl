{{- define "sluice.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Short enough for what is appended to it. */}}
{{- define "sluice.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "sluice.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "sluice.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "sluice.selectorLabels" -}}
app.kubernetes.io/name: {{ include "sluice.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Of every object. The component goes with its selector. */}}
{{- define "sluice.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "sluice.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: sluice
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "sluice.operatorLabels" -}}
{{ include "sluice.selectorLabels" . }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "sluice.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "sluice.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "sluice.image" -}}
{{- $repository := required "image.repository is not set: name the image that you have built from the Dockerfile and pushed, as in registry.example.com/sluice" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Start of every container. */}}
{{- define "sluice.container" -}}
image: {{ include "sluice.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- with .Values.securityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "sluice.logEnv" -}}
- {name: SLUICE_LOG, value: {{ .Values.log.filter | quote }}}
- {name: SLUICE_LOG_FORMAT, value: {{ .Values.log.format | quote }}}
{{- end -}}

{{/* Where the operator lives and whom it serves. */}}
{{- define "sluice.scopeEnv" -}}
- name: SLUICE_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
{{- with .Values.watchNamespaces }}
- {name: SLUICE_WATCH_NAMESPACES, value: {{ join "," . | quote }}}
{{- end }}
{{- end -}}

{{/* A dictionary with existingSecret, key and perhaps listenKey. */}}
{{- define "sluice.databaseEnv" -}}
- name: DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .key | quote }}}}
{{- if .listenKey }}
- name: SLUICE_LISTEN_DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .listenKey | quote }}}}
{{- end }}
{{- end -}}

{{- define "sluice.operatorSecret" -}}
{{- required "database.existingSecret is not set: name a Secret in this namespace whose key `url` (or database.key) holds the operator's Postgres URL" .Values.database.existingSecret -}}
{{- end -}}

{{/* Of all pods of the chart. */}}
{{- define "sluice.pod" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
