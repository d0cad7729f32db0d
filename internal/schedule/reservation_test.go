package schedule

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReservations(t *testing.T) {
	t.Parallel()
	rs := Reservations{
		{Instances: "gpu1", Tenants: []string{"exact"}},
		{Instances: "gpu*", Tenants: []string{"prefix", "exact"}},
		{Instances: "*-big", Tenants: []string{"suffix"}},
		{Instances: "lab-*-a*z", Tenants: []string{"both"}},
		{Instances: "[::1]:8188", Tenants: []string{"literal"}},
	}
	for name, want := range map[string][]string{
		"gpu1": {"exact", "prefix"}, "gpu2": {"exact", "prefix"}, "gpu": {"exact", "prefix"}, "xgpu1": nil, "": nil,
		"a-big": {"suffix"}, "gpu-big": {"exact", "prefix", "suffix"}, "a-big-b": nil,
		"lab-1-abz": {"both"}, "lab--az": {"both"}, "lab-1-az-az": {"both"}, "lab-a": nil, "lab-1-a": nil,
		"[::1]:8188": {"literal"}, ":": nil,
	} {
		require.Equal(t, want, rs.For(name), name)
	}
	require.Nil(t, Reservations(nil).For("gpu1"))
	require.Equal(t, []string{"all"}, Reservations{{Instances: "*", Tenants: []string{"all"}}}.For("anything"))
}
