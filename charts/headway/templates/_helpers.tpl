{{- define "headway.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "headway.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "headway.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "headway.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "headway.selectorLabels" -}}
app.kubernetes.io/name: {{ include "headway.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "headway.labels" -}}
{{ include "headway.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: headway
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "headway.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "headway.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name: needed when serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "headway.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- /* The agent's configuration file: its own keys, as they stand in the values. */}}
{{- define "headway.config" -}}
{{- if not .Values.clusterCIDRs }}
{{- fail "clusterCIDRs: required. Give the cluster's pod prefixes, one for each family, as in kube-controller-manager's --cluster-cidr: --set 'clusterCIDRs={10.244.0.0/16,fd00:10:244::/56}'" }}
{{- end }}
{{- $config := dict }}
{{- range list "clusterCIDRs" "sidBlock" "node" "underlayRoutes" "network" "encapsulation" "headroom" "masquerade" "mtu" "limits" "paths" "http" "expediteAttach" }}
{{- if hasKey $.Values . }}
{{- $_ := set $config . (index $.Values .) }}
{{- end }}
{{- end }}
{{- $cni := omit .Values.cni "confPriority" "binDir" }}
{{- $_ := set $cni "confName" (printf "%02d-headway.conflist" (int .Values.cni.confPriority)) }}
{{- $_ := set $config "cni" $cni }}
{{- toYaml $config }}
{{- end }}

{{- /* Address of a probe: what `http` says before and after its last colon. */}}
{{- define "headway.probe" -}}
{{- $host := regexReplaceAll "^\\[?([^\\]]*)\\]?:[0-9]+$" .http "${1}" }}
httpGet:
  # Wherever it listens, it does so on loopback, unless one address was chosen.
  host: {{ get (dict "0.0.0.0" "127.0.0.1" "::" "::1") $host | default $host | quote }}
  port: {{ regexReplaceAll "^.*:([0-9]+)$" .http "${1}" }}
  path: {{ .path }}
{{- end }}

{{- /* Says whose a definition in the cluster is, if it is not this release's. */}}
{{- define "headway.foreignCrd" -}}
{{- $there := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" .name }}
{{- if $there }}
{{- $annotations := default dict $there.metadata.annotations }}
{{- $name := default "" (index $annotations "meta.helm.sh/release-name") }}
{{- $namespace := default "" (index $annotations "meta.helm.sh/release-namespace") }}
{{- if or (ne $name .release.Name) (ne $namespace .release.Namespace) }}
{{- printf "%s (%s)" .name (ternary "of no release" (printf "of release %s in namespace %s" $name $namespace) (eq $name "")) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Parts of the admission policies. */}}
{{- define "headway.byAnAgent" -}}
name: by-an-agent
expression: request.userInfo.username == '{{ . }}'
{{- end }}

{{- define "headway.nodeOfAgent" -}}
name: node
expression: request.userInfo.?extra[?'authentication.kubernetes.io/node-name'][?0].orValue('')
{{- end }}
