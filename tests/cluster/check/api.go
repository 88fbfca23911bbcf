package check

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const widgetDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.check.example}
spec:
  group: check.example
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {low: {type: integer}, high: {type: integer}}
            x-kubernetes-validations:
            - {rule: "self.low <= self.high", message: "low must not be above high"}
            - {rule: "self.low == oldSelf.low", message: "low is immutable"}
`

func celRules(ctx context.Context, s *space) error {
	command := []string{"kubectl", "-n", s.name, "apply", "-f", "-"}
	apply := func(manifest string) error {
		_, err := s.runAs(ctx, s.admin(), manifest, command...)
		return err
	}
	widget := func(low, high int) string {
		return fmt.Sprintf("{apiVersion: check.example/v1, kind: Widget, metadata: {name: w}, spec: {low: %d, high: %d}}", low, high)
	}
	if err := apply(widgetDefinition); err != nil {
		return err
	}
	if err := until(ctx, 20*time.Second, "a good object is taken", func() error { return apply(widget(1, 2)) }); err != nil {
		return err
	}
	if err := refusedWith(apply(widget(1, 0)), "low must not be above high"); err != nil {
		return err
	}
	return refusedWith(apply(widget(0, 2)), "low is immutable")
}

// refusedWith passes when the error is there and has the words.
func refusedWith(err error, words string) error {
	switch {
	case err == nil:
		return fmt.Errorf("it was allowed; %q was expected", words)
	case !strings.Contains(err.Error(), words):
		return fmt.Errorf("%q was expected, not: %w", words, err)
	}
	return nil
}

func serverSideApply(ctx context.Context, s *space) error {
	apply := func(manager, value string, force bool) error {
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shared"},"data":{"owner":%q,%q:"1"}}`, value, manager)
		_, err := s.api.CoreV1().ConfigMaps(s.name).Patch(ctx, "shared", types.ApplyPatchType, []byte(body),
			metav1.PatchOptions{FieldManager: manager, Force: &force})
		return err
	}
	if err := apply("one", "one", false); err != nil {
		return err
	}
	if err := apply("two", "two", false); !apierrors.IsConflict(err) {
		return fmt.Errorf("a conflict was expected, not %v", err)
	}
	if err := apply("two", "two", true); err != nil {
		return err
	}
	got, err := s.api.CoreV1().ConfigMaps(s.name).Get(ctx, "shared", metav1.GetOptions{})
	if err != nil {
		return err
	}
	return expect(got.Data["owner"] == "two" && got.Data["one"] == "1" && len(got.ManagedFields) == 2,
		"data %v with %d managers", got.Data, len(got.ManagedFields))
}

func rbac(ctx context.Context, s *space) error {
	user := "tenant-of-" + s.name
	kubeconfig, err := s.userKubeconfig(ctx, s.scratch, user, "--group", "tenants")
	if err != nil {
		return err
	}
	list := func(namespace string) error {
		_, err := s.runAs(ctx, kubeconfig, "", "kubectl", "-n", namespace, "get", "pods")
		return err
	}
	if err := refusedWith(list(s.name), "forbidden"); err != nil {
		return err
	}
	_, err = s.api.RbacV1().RoleBindings(s.name).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "tenants"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "tenants"}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := until(ctx, 10*time.Second, "the group's members may list pods", func() error { return list(s.name) }); err != nil {
		return err
	}
	return refusedWith(list("kube-system"), "forbidden")
}

// auditCounts writes as a user of its own and counts its lines in the audit log.
func auditCounts(ctx context.Context, s *space) error {
	const writes = 7
	user := "writer-in-" + s.name
	kubeconfig, err := s.userKubeconfig(ctx, s.scratch, user, "--group", "system:masters")
	if err != nil {
		return err
	}
	var manifests strings.Builder
	for i := range writes {
		fmt.Fprintf(&manifests, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c%d}}\n---\n", i)
	}
	if _, err := s.runAs(ctx, kubeconfig, manifests.String(), "kubectl", "-n", s.name, "create", "-f", "-"); err != nil {
		return err
	}
	status, err := s.session.status(ctx)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(status.AuditLog)
	if err != nil {
		return err
	}
	count := 0
	for _, line := range bytes.Split(text, []byte("\n")) {
		var event struct {
			Verb                     string
			User                     struct{ Username string }
			ObjectRef                struct{ Resource string }
			RequestReceivedTimestamp time.Time
		}
		if json.Unmarshal(line, &event) == nil && event.User.Username == user && event.Verb == "create" &&
			event.ObjectRef.Resource == "configmaps" && time.Since(event.RequestReceivedTimestamp) < time.Minute {
			count++
		}
	}
	return expect(count == writes, "%d writes are in the audit log, not %d", count, writes)
}

func podSecurity(ctx context.Context, s *space) error {
	label := `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`
	_, err := s.api.CoreV1().Namespaces().Patch(ctx, s.name, types.MergePatchType, []byte(label), metav1.PatchOptions{})
	if err != nil {
		return err
	}
	if err := refusedWith(s.createPod(ctx, "root", podSpec("serve")), "violates PodSecurity"); err != nil {
		return err
	}
	spec := podSpec("serve")
	spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot: ptr(true), RunAsUser: ptr(int64(65534)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	if err := s.createPod(ctx, "nobody", spec); err != nil {
		return err
	}
	return s.awaitReady(ctx, "nobody")
}

// aggregatedDiscovery and flow control are on: both show in an answer of the API server.
func discoveryAndFlowControl(ctx context.Context, s *space) error {
	client := s.api.CoreV1().RESTClient()
	answer := client.Get().AbsPath("/apis").
		SetHeader("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList").Do(ctx)
	text, err := answer.Raw()
	if err != nil {
		return err
	}
	if err := expect(bytes.Contains(text, []byte(`"APIGroupDiscoveryList"`)), "no aggregated discovery: %.100s", text); err != nil {
		return err
	}
	schemas, err := s.api.FlowcontrolV1().FlowSchemas().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	metrics, err := client.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return err
	}
	dispatched := bytes.Contains(metrics, []byte("apiserver_flowcontrol_dispatched_requests_total{"))
	return expect(len(schemas.Items) > 5 && dispatched, "%d flow schemas, requests dispatched by them: %t", len(schemas.Items), dispatched)
}

func ownerReferences(ctx context.Context, s *space) error {
	maps := s.api.CoreV1().ConfigMaps(s.name)
	owner, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	reference := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}
	owned := metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{reference}}
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: owned}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := maps.Delete(ctx, "owner", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return until(ctx, 30*time.Second, "the owned object is collected", func() error {
		_, err := maps.Get(ctx, "owned", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errNotYet
	})
}

func namespaceDeletion(ctx context.Context, s *space) error {
	if err := s.createDeployment(ctx, "web", 2, podSpec("serve")); err != nil {
		return err
	}
	if err := s.awaitRollout(ctx, "web", time.Minute); err != nil {
		return err
	}
	if err := s.api.CoreV1().Namespaces().Delete(ctx, s.name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return until(ctx, time.Minute, "the namespace and all in it are gone", func() error {
		_, err := s.api.CoreV1().Namespaces().Get(ctx, s.name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return errNotYet
		}
		pods, err := s.api.CoreV1().Pods(s.name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		return expect(len(pods.Items) == 0, "%d pods are left", len(pods.Items))
	})
}
