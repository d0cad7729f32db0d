package kubernetes

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/scale"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const one, two, three = "comfyui-6d4f-1", "comfyui-6d4f-2", "comfyui-6d4f-3"

// started is a Deployment with three pods that run.
func started(t *testing.T) (*api, Deployment) {
	a := newAPI(t)
	d := a.deployment()
	require.NoError(t, d.Set(t.Context(), scale.Change{Wanted: 3, Start: 3}))
	require.Equal(t, []string{one, two, three}, a.names())
	a.up()
	return a, d
}

// The pods go that are named, not others, also if a hub died and another says it again.
func TestNamedPodsGo(t *testing.T) {
	a, d := started(t)
	change := scale.Change{Wanted: 2, Remove: []string{two}, Keep: []string{one, three}}
	for range 2 {
		require.NoError(t, d.Set(t.Context(), change))
		require.Equal(t, []string{one, three}, a.names())
	}
	// A new one that has not joined goes before those that have.
	require.NoError(t, d.Set(t.Context(), scale.Change{Wanted: 3, Start: 1, Keep: []string{one, three}}))
	require.Len(t, a.names(), 3)
	require.NoError(t, d.Set(t.Context(), scale.Change{Wanted: 2, Keep: []string{one, three}}))
	require.Equal(t, []string{one, three}, a.names())
	require.NoError(t, d.Set(t.Context(), scale.Change{Remove: []string{one, three}}))
	require.Empty(t, a.names())
}

// A pod that was to go, and stays after all, costs as much as any other.
func TestTakenBackPod(t *testing.T) {
	a, d := started(t)
	a.refuse = func(r *http.Request) (int, string) {
		if r.Method == http.MethodPut {
			return http.StatusInternalServerError, "etcdserver: request timed out"
		}
		return 0, ""
	}
	require.ErrorContains(t, d.Set(t.Context(), scale.Change{Wanted: 2, Remove: []string{two}, Keep: []string{one, three}}), "500: etcdserver: request timed out")
	a.refuse = nil
	require.NoError(t, d.Set(t.Context(), scale.Change{Wanted: 2, Remove: []string{three}, Keep: []string{one, two}}))
	require.Equal(t, []string{one, two}, a.names())
	for _, p := range a.pods {
		require.Empty(t, p.Metadata.Annotations)
	}
}

// While a pod is not ready that has to stay, none goes: it would be the first.
func TestNoPodGoesInPlaceOfAnother(t *testing.T) {
	a, d := started(t)
	for _, p := range a.pods {
		if p.Metadata.Name == one {
			a.ready(p, "False")
		}
	}
	change := scale.Change{Wanted: 2, Remove: []string{two}, Keep: []string{one, three}}
	require.ErrorContains(t, d.Set(t.Context(), change), "pod "+one+" is not ready")
	require.Len(t, a.names(), 3)
	a.up()
	require.NoError(t, d.Set(t.Context(), change))
	require.Equal(t, []string{one, three}, a.names())
	// Nor do those that have to stay go when the number says so.
	require.NoError(t, d.Set(t.Context(), scale.Change{Wanted: 1, Keep: []string{one, three}}))
	require.Equal(t, []string{one, three}, a.names())
}

// What somebody else has changed meanwhile is not overwritten, and a new token of the service account
// is used.
func TestOthersChangeIt(t *testing.T) {
	a, d := started(t)
	a.between = func() { a.version++ }
	change := scale.Change{Wanted: 4, Start: 1, Keep: []string{one, two, three}}
	require.ErrorContains(t, d.Set(t.Context(), change), "409: the object has been modified")
	a.between = nil
	a.newToken("second")
	require.NoError(t, d.Set(t.Context(), change))
	require.Len(t, a.names(), 4)
}

// Operators read why it does not work.
func TestWhatFails(t *testing.T) {
	a, d := started(t)
	a.refuse = func(*http.Request) (int, string) {
		return http.StatusForbidden, `deployments.apps "comfyui" is forbidden: User "system:serviceaccount:gpus:hub" cannot get resource "deployments/scale"`
	}
	require.ErrorContains(t, d.Set(t.Context(), scale.Change{}), `403: deployments.apps "comfyui" is forbidden`)
	d.Name = "other"
	a.refuse = nil
	require.ErrorContains(t, d.Set(t.Context(), scale.Change{}), "404")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	require.ErrorContains(t, Deployment{Name: "x"}.Set(t.Context(), scale.Change{}), "the hub is in no pod")
}
