package check

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// containerSettings are those that a pod can ask for, seen from inside it.
func containerSettings(ctx context.Context, s *space) error {
	spec := shellSpec(`echo "$GREETING,$(id -u),$(pwd),$(touch /forbidden 2>/dev/null && echo writable || echo read-only)"; ` +
		`touch /data/allowed && echo -n well > /dev/termination-log`)
	spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr(int64(1234)), FSGroup: ptr(int64(1234))}
	c := &spec.Containers[0]
	c.Env = append(c.Env, corev1.EnvVar{Name: "GREETING", Value: "hello"})
	c.WorkingDir = "/usr"
	c.SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: ptr(true)}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	text, err := s.output(ctx, "settings", spec)
	if err != nil {
		return err
	}
	if err := expect(strings.TrimSpace(text) == "hello,1234,/usr,read-only", "the container saw %q", text); err != nil {
		return err
	}
	end, err := s.awaitEnd(ctx, "settings")
	if err != nil {
		return err
	}
	return expect(end.Message == "well", "the termination message is %q", end.Message)
}

func memoryLimit(ctx context.Context, s *space) error {
	spec := once(podSpec("eat", "400"))
	spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
	if err := s.createPod(ctx, "hungry", spec); err != nil {
		return err
	}
	end, err := s.awaitEnd(ctx, "hungry")
	if err != nil {
		return err
	}
	return expect(end.Reason == "OOMKilled", "it ended with %s, code %d", end.Reason, end.ExitCode)
}

// mountsUpdate changes a ConfigMap and a Secret under a running container.
func mountsUpdate(ctx context.Context, s *space) error {
	object := metav1.ObjectMeta{Name: "settings"}
	data := map[string]string{"value": "old"}
	core := s.api.CoreV1()
	if _, err := core.ConfigMaps(s.name).Create(ctx, &corev1.ConfigMap{ObjectMeta: object, Data: data}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := core.Secrets(s.name).Create(ctx, &corev1.Secret{ObjectMeta: object, StringData: data}, metav1.CreateOptions{}); err != nil {
		return err
	}
	spec := podSpec("serve")
	spec.Volumes = []corev1.Volume{
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
		}}},
		{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "settings"}}},
	}
	spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "config", MountPath: "/config"}, {Name: "secret", MountPath: "/secret"}}
	if err := s.createPod(ctx, "reader", spec); err != nil {
		return err
	}
	if err := s.awaitReady(ctx, "reader"); err != nil {
		return err
	}
	shows := func(want string) error {
		return until(ctx, 90*time.Second, "both mounts show "+want, func() error {
			text, err := s.kubectl(ctx, "exec", "reader", "--", "cat", "/config/value", "/secret/value")
			if err != nil {
				return err
			}
			return expect(text == want+want, "they show %q", text)
		})
	}
	if err := shows("old"); err != nil {
		return err
	}
	if _, err := core.ConfigMaps(s.name).Patch(ctx, "settings", types.MergePatchType, []byte(`{"data":{"value":"new"}}`), metav1.PatchOptions{}); err != nil {
		return err
	}
	if _, err := core.Secrets(s.name).Patch(ctx, "settings", types.MergePatchType, []byte(`{"stringData":{"value":"new"}}`), metav1.PatchOptions{}); err != nil {
		return err
	}
	if err := shows("new"); err != nil {
		return err
	}
	p, err := s.pod(ctx, "reader")
	if err != nil {
		return err
	}
	return expect(p.Status.ContainerStatuses[0].RestartCount == 0, "it was restarted: %s", describe(p))
}

// tokenRotates waits for the kubelet to renew a token. The shortest life is ten minutes, and it
// is renewed when four fifths of it are over.
func tokenRotates(ctx context.Context, s *space) error {
	spec := podSpec("serve")
	spec.Volumes = []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
			Path: "token", Audience: "check", ExpirationSeconds: ptr(int64(600)),
		}}},
	}}}}
	spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "token", MountPath: "/token"}}
	if err := s.createPod(ctx, "holder", spec); err != nil {
		return err
	}
	if err := s.awaitReady(ctx, "holder"); err != nil {
		return err
	}
	read := func() (string, error) { return s.kubectl(ctx, "exec", "holder", "--", "cat", "/token/token") }
	first, err := read()
	if err != nil {
		return err
	}
	if err := expect(strings.Count(first, ".") == 2, "%q is no token", first); err != nil {
		return err
	}
	return until(ctx, 9*time.Minute, "the token is another", func() error {
		time.Sleep(5 * time.Second)
		now, err := read()
		if err == nil && now == first {
			err = errNotYet
		}
		return err
	})
}

// inClusterClient connects as any program in a pod does and is known by its ServiceAccount.
func inClusterClient(ctx context.Context, s *space) error {
	text, err := s.output(ctx, "who", podSpec("whoami"))
	if err != nil {
		return err
	}
	account := fmt.Sprintf("system:serviceaccount:%s:default", s.name)
	return expect(strings.Contains(text, account) && strings.Contains(text, "forbidden"), "the API server answered %.300s", text)
}
