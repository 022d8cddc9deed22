{{- /* What holds for every container: root on the node's files, as little else as possible. */}}
{{- define "headway.confinement" -}}
runAsUser: 0
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
seccompProfile: {type: RuntimeDefault}
# On nodes with SELinux, containers may not write to the node's folders otherwise.
seLinuxOptions: {type: spc_t}
{{- end }}

{{- /* The container of the agent, save for its name and its arguments. docs/security.md has the same table. */}}
{{- define "headway.container" -}}
image: {{ include "headway.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  - name: HEADWAY_NODE_NAME
    valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
  - {name: HEADWAY_NAMESPACE, value: {{ .Release.Namespace | quote }}}
  - {name: HEADWAY_DAEMONSET, value: {{ include "headway.fullname" . | quote }}}
  - {name: HEADWAY_LOG_LEVEL, value: {{ .Values.logLevel | quote }}}
  - {name: HEADWAY_LOG_FORMAT, value: {{ .Values.logFormat | quote }}}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  {{- include "headway.confinement" . | nindent 2 }}
  # AppArmor's profile for containers forbids writing to /sys, and so to bpffs.
  appArmorProfile: {type: Unconfined}
  capabilities:
    drop: [ALL]
    add:
      # Links, addresses, routes, neighbours, settings of the network, nftables, attaching programs to links.
      - NET_ADMIN
      # Loading the switch's programs, making and pinning its maps.
      - BPF
      # The kernel's verifier lets programs read packets and their own stack only with it.
      - PERFMON
      # Probes of peers: ICMP echo.
      - NET_RAW
volumeMounts:
  - {name: config, mountPath: /etc/headway, readOnly: true}
  # The socket for the CNI plugin, the sign of life.
  - {name: run, mountPath: {{ dir .Values.paths.socket | quote }}}
  # Leases, and what else has to outlive the agent.
  - {name: state, mountPath: {{ .Values.paths.state | quote }}}
  # Pinned programs and maps. The node's own mount: pins in a mount of the container's would go with it, and the traffic too.
  - {name: bpf, mountPath: {{ dir .Values.paths.bpf | quote }}, mountPropagation: HostToContainer}
  # Kernel settings of the network; the container's own /proc/sys is read-only.
  - {name: sysctls, mountPath: /host/proc/sys/net}
  {{- if .Values.expediteAttach }}
  # The switch that makes the kernel hurry while a program is attached; the container's own /sys is read-only.
  - {name: rcu-expedited, mountPath: /sys/kernel/rcu_expedited}
  {{- end }}
  # The CNI configuration, written last.
  - {name: cni-conf, mountPath: {{ .Values.cni.confDir | quote }}}
  {{- if .Values.cleanup.enabled }}
  - {name: cni-bin, mountPath: {{ .Values.cni.binDir | quote }}}
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "headway.cleanupArgs" -}}
[cleanup, --config=/etc/headway/config.yaml, --plugin-folder={{ .Values.cni.binDir }}]
{{- end }}
