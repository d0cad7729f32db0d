// Package kubernetes lets a Deployment have as many pods as package scale says, and lets those go that
// it names: each pod is one instance, which has the pod's name.
//
// A Deployment does not let anybody name the pods that go. Its ReplicaSet takes those first that are
// not scheduled, not running, or not ready, and of the others those whose annotation says that they
// cost least. So the provider annotates the pods that are to go, and lowers nothing while a pod that
// has to stay would be taken first.
package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/scale"
)

// Deployment is a [scale.Provider].
type Deployment struct {
	// Namespace is where it is. Default: that of the hub's own pod.
	Namespace, Name string
	// Cluster is how the API server is reached. The zero value is right in a pod.
	Cluster Cluster
}

const (
	// costOf is the annotation that a ReplicaSet looks at, and goes its value for pods that are to go.
	costOf = "controller.kubernetes.io/pod-deletion-cost"
	goes   = "-1000"
	// page is how many pods are asked for at once.
	page = 250
)

// scaleOf is autoscaling/v1 Scale.
type scaleOf struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name            string `json:"name"`
		Namespace       string `json:"namespace"`
		ResourceVersion string `json:"resourceVersion,omitempty"`
	} `json:"metadata"`
	Spec struct {
		Replicas int `json:"replicas"`
	} `json:"spec"`
	Status struct {
		Replicas int    `json:"replicas"`
		Selector string `json:"selector,omitempty"`
	} `json:"status"`
}

// pod is what matters of core/v1 Pod.
type pod struct {
	Metadata struct {
		Name              string            `json:"name"`
		Annotations       map[string]string `json:"annotations"`
		DeletionTimestamp string            `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		NodeName string `json:"nodeName"`
	} `json:"spec"`
	Status struct {
		Phase      string `json:"phase"`
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

// pods is core/v1 PodList.
type pods struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []pod `json:"items"`
}

// Set implements [scale.Provider].
func (d Deployment) Set(ctx context.Context, c scale.Change) error {
	k, err := d.Cluster.open(d.Namespace)
	if err != nil {
		return err
	}
	path := "/apis/apps/v1/namespaces/" + url.PathEscape(k.namespace) + "/deployments/" + url.PathEscape(d.Name) + "/scale"
	var now scaleOf
	if err := k.call(ctx, http.MethodGet, path, "", nil, &now); err != nil {
		return err
	}
	if now.Status.Selector == "" {
		return errors.New("the Deployment does not say which pods are its own")
	}
	live, err := k.list(ctx, now.Status.Selector)
	if err != nil {
		return err
	}
	for n := range live {
		if err := k.mark(ctx, &live[n], c); err != nil {
			return err
		}
	}
	staying := 0
	for _, p := range live {
		if slices.Contains(c.Keep, p.Metadata.Name) {
			staying++
		}
	}
	replicas := max(c.Wanted, staying)
	if replicas == now.Spec.Replicas {
		return nil
	}
	if name := taken(live, len(live)-replicas, c.Keep); name != "" {
		return fmt.Errorf("pod %s is not ready, so it would be removed first, and it has to stay", name)
	}
	now.Spec.Replicas = replicas
	return k.call(ctx, http.MethodPut, path, "application/json", now, nil) // 409 if anybody has changed it meanwhile
}

// list returns the pods that a selector finds, without those that end.
func (k *cluster) list(ctx context.Context, selector string) (live []pod, err error) {
	query := url.Values{"labelSelector": {selector}, "limit": {strconv.Itoa(page)}}
	for range scale.MaxMachines {
		var some pods
		if err := k.call(ctx, http.MethodGet, k.pods()+"?"+query.Encode(), "", nil, &some); err != nil {
			return nil, err
		}
		live = append(live, some.Items...)
		if some.Metadata.Continue == "" {
			break
		}
		query.Set("continue", some.Metadata.Continue)
	}
	return slices.DeleteFunc(live, func(p pod) bool {
		return p.Metadata.DeletionTimestamp != "" || p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed"
	}), nil
}

// mark annotates a pod that is to go, and no other.
func (k *cluster) mark(ctx context.Context, p *pod, c scale.Change) error {
	going, marked := slices.Contains(c.Remove, p.Metadata.Name), p.Metadata.Annotations[costOf] == goes
	if going == marked {
		return nil
	}
	var cost any // none
	if going {
		cost = goes
	}
	patch := map[string]any{"metadata": map[string]any{"annotations": map[string]any{costOf: cost}}}
	var changed pod
	err := k.call(ctx, http.MethodPatch, k.pods()+"/"+url.PathEscape(p.Metadata.Name), "application/merge-patch+json", patch, &changed)
	switch {
	case isGone(err):
		return nil
	case err != nil:
		return err
	}
	*p = changed
	return nil
}

// taken is a pod that has to stay, and that is among those that a ReplicaSet removes first; empty if
// none is.
func taken(live []pod, removed int, keep []string) string {
	live = slices.Clone(live)
	slices.SortStableFunc(live, func(a, b pod) int {
		// Those that are equal: the worst is that one goes which has to stay.
		return cmp.Or(slices.Compare(a.rank(), b.rank()), cmp.Compare(stays(keep, b), stays(keep, a)))
	})
	for _, p := range live[:max(min(removed, len(live)), 0)] {
		if slices.Contains(keep, p.Metadata.Name) {
			return p.Metadata.Name
		}
	}
	return ""
}

func stays(keep []string, p pod) int {
	if slices.Contains(keep, p.Metadata.Name) {
		return 1
	}
	return 0
}

// rank is what a ReplicaSet compares first; lower goes first.
func (p pod) rank() []int {
	r := make([]int, 4)
	if p.Spec.NodeName != "" {
		r[0] = 1
	}
	r[1] = slices.Index([]string{"Pending", "Unknown", "Running"}, p.Status.Phase)
	for _, c := range p.Status.Conditions {
		if c.Type == "Ready" && c.Status == "True" {
			r[2] = 1
		}
	}
	r[3], _ = strconv.Atoi(p.Metadata.Annotations[costOf])
	return r
}
