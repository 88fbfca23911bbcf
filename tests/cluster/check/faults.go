package check

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// networkFaults breaks the line of one client while another's stays whole.
func networkFaults(ctx context.Context, s *space) error {
	broken, err := s.userKubeconfig(ctx, s.scratch, "broken", "--group", "system:masters", "--through", "broken")
	if err != nil {
		return err
	}
	whole, err := s.userKubeconfig(ctx, s.scratch, "whole", "--group", "system:masters", "--through", "whole")
	if err != nil {
		return err
	}
	get := func(kubeconfig string) (time.Duration, error) {
		begun := time.Now()
		_, err := s.runAs(ctx, kubeconfig, "", "kubectl", "get", "--raw", "/version", "--request-timeout=3s")
		return time.Since(begun), err
	}
	set := func(fault ...string) error {
		_, err := s.run(ctx, append(append([]string{"net"}, fault...), "--client", "broken")...)
		return err
	}
	if _, err := get(broken); err != nil {
		return err
	}
	if err := set("delay", "400"); err != nil {
		return err
	}
	// The TLS handshake and the request take two round trips at least.
	took, err := get(broken)
	if err != nil {
		return err
	}
	if err := expect(took >= 1600*time.Millisecond, "with 400 ms of delay it took %v", took); err != nil {
		return err
	}
	for _, fault := range []string{"cut", "blackhole"} {
		if err := set(fault); err != nil {
			return err
		}
		took, err := get(broken)
		if err == nil {
			return fmt.Errorf("it went through a line that is %s", fault)
		}
		if err := expect((took > 2*time.Second) == (fault == "blackhole"), "%s took %v to fail: %w", fault, took, err); err != nil {
			return err
		}
		if _, err := get(whole); err != nil {
			return fmt.Errorf("the other client's line is broken too: %w", err)
		}
	}
	if err := set("ok"); err != nil {
		return err
	}
	_, err = get(broken)
	return err
}

// apiServerRestart kills the API server; its objects are there again after it.
func apiServerRestart(ctx context.Context, s *space) error {
	maps := s.api.CoreV1().ConfigMaps(s.name)
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := s.createDeployment(ctx, "web", 1, podSpec("serve")); err != nil {
		return err
	}
	if err := s.awaitRollout(ctx, "web", time.Minute); err != nil {
		return err
	}
	before, err := s.pods(ctx, "web")
	if err != nil {
		return err
	}
	if _, err := s.run(ctx, "kill", "kube-apiserver"); err != nil {
		return err
	}
	if _, err := maps.Get(ctx, "kept", metav1.GetOptions{}); err == nil {
		return fmt.Errorf("the API server answers though it was killed")
	}
	if _, err := s.run(ctx, "restart", "kube-apiserver"); err != nil {
		return err
	}
	if _, err := maps.Get(ctx, "kept", metav1.GetOptions{}); err != nil {
		return err
	}
	after, err := s.pods(ctx, "web")
	if err != nil {
		return err
	}
	same := len(after) == 1 && after[0].UID == before[0].UID && after[0].Status.ContainerStatuses[0].RestartCount == 0
	if err := expect(same, "its pod was replaced or restarted"); err != nil {
		return err
	}
	// Controllers are back at work as well.
	if err := s.scale(ctx, "web", 2); err != nil {
		return err
	}
	return s.awaitRollout(ctx, "web", time.Minute)
}

// apiServerFreeze stops the API server and lets it go on: requests hang meanwhile, and end well.
func apiServerFreeze(ctx context.Context, s *space) error {
	if _, err := s.run(ctx, "stop", "kube-apiserver"); err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	_, err := s.pods(short, "any")
	cancel()
	if err := expect(err != nil, "it answered while it was stopped"); err != nil {
		return err
	}
	if _, err := s.run(ctx, "cont", "kube-apiserver"); err != nil {
		return err
	}
	return until(ctx, 10*time.Second, "it answers again", func() error {
		_, err := s.pods(ctx, "any")
		return err
	})
}

// lostNode kills a node with all that runs on it; its pods come up on another.
func lostNode(ctx context.Context, s *space) error {
	const lost = "node-lost"
	if _, err := s.run(ctx, "node", "add", lost); err != nil {
		return err
	}
	// With the first node closed, the pods can only come up on the one that is to be lost.
	if err := s.closeNode(ctx, "node-1", true); err != nil {
		return err
	}
	defer func() { _ = s.closeNode(context.Background(), "node-1", false) }()
	if err := s.createDeployment(ctx, "web", 2, podSpec("serve")); err != nil {
		return err
	}
	if err := s.awaitRollout(ctx, "web", time.Minute); err != nil {
		return err
	}
	if err := s.runningOn(ctx, "web", lost, 2); err != nil {
		return err
	}
	if err := s.closeNode(ctx, "node-1", false); err != nil {
		return err
	}
	if _, err := s.run(ctx, "node", "kill", lost); err != nil {
		return err
	}
	err := until(ctx, time.Minute, "the node is NotReady", func() error {
		node, err := s.api.CoreV1().Nodes().Get(ctx, lost, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				return nil
			}
		}
		return errNotYet
	})
	if err != nil {
		return err
	}
	err = until(ctx, time.Minute, "its pods run on another node", func() error { return s.runningOn(ctx, "web", "node-1", 2) })
	if err != nil {
		return err
	}
	// Without the node's object, the pods that were lost with it are forgotten too.
	return s.api.CoreV1().Nodes().Delete(ctx, lost, metav1.DeleteOptions{})
}

// frozenNode stops a node with its containers, and thaws it before it is given up.
func frozenNode(ctx context.Context, s *space) error {
	const frozen = "node-frozen"
	if _, err := s.run(ctx, "node", "add", frozen); err != nil {
		return err
	}
	spec := podSpec("say", "10000")
	spec.NodeName = frozen
	if err := s.createPod(ctx, "speaker", spec); err != nil {
		return err
	}
	if err := s.awaitReady(ctx, "speaker"); err != nil {
		return err
	}
	length := func() (int, error) {
		text, err := s.api.CoreV1().Pods(s.name).GetLogs("speaker", &corev1.PodLogOptions{}).DoRaw(ctx)
		return len(text), err
	}
	if _, err := s.run(ctx, "node", "freeze", frozen); err != nil {
		return err
	}
	time.Sleep(2 * time.Second)
	if _, err := s.run(ctx, "node", "thaw", frozen); err != nil {
		return err
	}
	thawed, err := length()
	if err != nil {
		return err
	}
	// Twenty lines would have been written in the meantime, had the container run.
	if err := expect(thawed < 20*len("line 10\n"), "the container wrote %d bytes", thawed); err != nil {
		return err
	}
	err = until(ctx, 10*time.Second, "the container writes again", func() error {
		now, err := length()
		if err == nil && now <= thawed {
			err = errNotYet
		}
		return err
	})
	if err != nil {
		return err
	}
	if _, err := s.run(ctx, "node", "kill", frozen); err != nil {
		return err
	}
	return s.api.CoreV1().Nodes().Delete(ctx, frozen, metav1.DeleteOptions{})
}

func (s *space) closeNode(ctx context.Context, name string, closed bool) error {
	patch := fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, closed)
	_, err := s.api.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func (s *space) runningOn(ctx context.Context, app, node string, want int) error {
	pods, err := s.pods(ctx, app)
	if err != nil {
		return err
	}
	count, all := 0, ""
	for i := range pods {
		if pods[i].Spec.NodeName == node && isReady(&pods[i]) {
			count++
		}
		all += "; " + describe(&pods[i])
	}
	return expect(count == want, "%d of %d run on %s%s", count, want, node, all)
}
