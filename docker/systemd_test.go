package docker_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// units returns copies of the systemd units in which each program exists: verify looks for
// them.
func units(t *testing.T) []string {
	t.Helper()
	must.Get(analyze(t, "--version"))(t)
	paths := must.Get(filepath.Glob("systemd/*.service"))(t)
	require.Len(t, paths, 3)
	folder := t.TempDir()
	program := regexp.MustCompile(`(?m)^(Exec\w+=)/usr/local/bin/\w+`)
	copies := make([]string, len(paths))
	for i, path := range paths {
		text := must.Get(os.ReadFile(path))(t)
		copies[i] = filepath.Join(folder, filepath.Base(path))
		require.NoError(t, os.WriteFile(copies[i], program.ReplaceAll(text, []byte("${1}/bin/true")), 0o600))
	}
	return copies
}

// analyze returns what systemd-analyze says, and its error.
func analyze(t *testing.T, args ...string) (string, error) {
	t.Helper()
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here")
	}
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	return string(out), err
}

func TestUnitsAreValid(t *testing.T) {
	t.Parallel()
	for _, unit := range units(t) {
		out, err := analyze(t, "verify", "--man=no", unit)
		require.NoError(t, err, out)
		require.Empty(t, out, "words that systemd does not know are only warnings")
	}
}

func TestUnitsAreHardened(t *testing.T) {
	t.Parallel()
	if help, _ := analyze(t, "--help"); !strings.Contains(help, "--offline") {
		t.Skip("systemd-analyze judges only running services here")
	}
	judge := func(unit, most string) (string, error) {
		return analyze(t, "security", "--no-pager", "--offline=true", "--threshold="+most, unit)
	}
	for _, unit := range units(t) {
		out, err := judge(unit, "25")
		require.NoError(t, err, out)
		out, err = judge(unit, "5")
		require.Error(t, err, "the threshold counts: %s", out)
	}
}

// Each service may take as long to stop as its program does, and none is given up.
func TestUnitsWaitForTheirPrograms(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]string{"comfyhub": "40s", "comfyhub-agent": "75s", "comfyhub-botbridge": "60s"} {
		text := must.Get(os.ReadFile("systemd/" + name + ".service"))(t)
		for _, line := range []string{"TimeoutStopSec=" + stop, "Restart=always", "StartLimitIntervalSec=0", "DynamicUser=yes", "NoNewPrivileges=yes"} {
			require.Contains(t, string(text), "\n"+line+"\n", name)
		}
	}
}

// object is a Kubernetes object, as far as it refers to others. Whether its fields are
// right is for the published schemas to say: make docker-check.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		// Of a Service.
		Selector yaml.Node
		Ports    []struct {
			TargetPort string `yaml:"targetPort"`
		}
		// Of a workload.
		Template             pod
		VolumeClaimTemplates []struct{ Metadata struct{ Name string } } `yaml:"volumeClaimTemplates"`
	}
	Data map[string]string
}

// pod is the template of a workload's pods.
type pod struct {
	Metadata struct{ Labels map[string]string }
	Spec     struct {
		SecurityContext struct {
			RunAsNonRoot bool `yaml:"runAsNonRoot"`
		} `yaml:"securityContext"`
		InitContainers []container `yaml:"initContainers"`
		Containers     []container
		Volumes        []struct {
			Name                  string
			ConfigMap             *struct{ Name string } `yaml:"configMap"`
			PersistentVolumeClaim *struct {
				ClaimName string `yaml:"claimName"`
			} `yaml:"persistentVolumeClaim"`
		}
	}
}

type container struct {
	Name  string
	Image string
	Ports []struct{ Name string }
	Env   []struct {
		Name      string
		ValueFrom struct {
			SecretKeyRef *struct{ Name, Key string } `yaml:"secretKeyRef"`
		} `yaml:"valueFrom"`
	}
	VolumeMounts    []struct{ Name string } `yaml:"volumeMounts"`
	SecurityContext struct {
		RunAsNonRoot             bool  `yaml:"runAsNonRoot"`
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
	} `yaml:"securityContext"`
}

// objects reads the manifests that kustomization.yaml names, all that there are.
func objects(t *testing.T) []object {
	t.Helper()
	var kustomization struct{ Resources []string }
	require.NoError(t, yaml.Unmarshal(must.Get(os.ReadFile("kubernetes/kustomization.yaml"))(t), &kustomization))
	require.Len(t, must.Get(filepath.Glob("kubernetes/*.yaml"))(t), len(kustomization.Resources)+1, "each file is applied")
	var all []object
	for _, name := range kustomization.Resources {
		file := must.Get(os.Open(filepath.Join("kubernetes", name)))(t)
		defer func() { require.NoError(t, file.Close()) }()
		for decoder := yaml.NewDecoder(file); ; {
			var o object
			err := decoder.Decode(&o)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, name)
			all = append(all, o)
		}
	}
	return all
}

// What an object of the manifests refers to is there under that name.
func TestManifestsReferToEachOther(t *testing.T) {
	t.Parallel()
	all := objects(t)
	has := func(kind, name string) bool {
		return slices.ContainsFunc(all, func(o object) bool { return o.Kind == kind && o.Metadata.Name == name })
	}
	workloads, services := 0, 0
	for _, o := range all {
		switch o.Kind {
		case "Service":
			services++
			var selector map[string]string
			require.NoError(t, o.Spec.Selector.Decode(&selector))
			var ports []string
			for _, w := range all {
				if len(w.Spec.Template.Spec.Containers) == 0 || w.Spec.Template.Metadata.Labels["app"] != selector["app"] {
					continue
				}
				for _, c := range w.Spec.Template.Spec.Containers {
					for _, p := range c.Ports {
						ports = append(ports, p.Name)
					}
				}
			}
			for _, p := range o.Spec.Ports {
				require.Contains(t, ports, p.TargetPort, "service %s", o.Metadata.Name)
			}
		case "Deployment", "DaemonSet", "StatefulSet":
			workloads++
			var selector struct {
				MatchLabels map[string]string `yaml:"matchLabels"`
			}
			require.NoError(t, o.Spec.Selector.Decode(&selector))
			require.Equal(t, o.Spec.Template.Metadata.Labels, selector.MatchLabels, o.Metadata.Name)
			var volumes []string
			for _, claim := range o.Spec.VolumeClaimTemplates {
				volumes = append(volumes, claim.Metadata.Name)
			}
			for _, v := range o.Spec.Template.Spec.Volumes {
				volumes = append(volumes, v.Name)
				if v.ConfigMap != nil {
					require.True(t, has("ConfigMap", v.ConfigMap.Name), v.ConfigMap.Name)
				}
				if v.PersistentVolumeClaim != nil {
					require.True(t, has("PersistentVolumeClaim", v.PersistentVolumeClaim.ClaimName), v.PersistentVolumeClaim.ClaimName)
				}
			}
			for _, c := range slices.Concat(o.Spec.Template.Spec.InitContainers, o.Spec.Template.Spec.Containers) {
				for _, m := range c.VolumeMounts {
					require.Contains(t, volumes, m.Name, "%s/%s", o.Metadata.Name, c.Name)
				}
			}
		}
	}
	require.Equal(t, 3, workloads)
	require.Equal(t, 3, services)
}

// The programs of ComfyHub run without root, no container can gain privileges, and the
// hubs' secret reaches hubs only: a GPU machine must not have it.
func TestManifestsGiveAwayNothing(t *testing.T) {
	t.Parallel()
	secrets := map[string][]string{}
	for _, o := range objects(t) {
		spec := o.Spec.Template.Spec
		for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
			escalates := c.SecurityContext.AllowPrivilegeEscalation
			require.True(t, escalates != nil && !*escalates, "%s/%s", o.Metadata.Name, c.Name)
			if c.Name == "hub" || c.Name == "agent" || c.Name == "redis" {
				require.True(t, spec.SecurityContext.RunAsNonRoot || c.SecurityContext.RunAsNonRoot, "%s/%s", o.Metadata.Name, c.Name)
			}
			for _, e := range c.Env {
				if ref := e.ValueFrom.SecretKeyRef; ref != nil {
					secrets[ref.Name+"/"+ref.Key] = append(secrets[ref.Name+"/"+ref.Key], c.Name)
				}
			}
		}
	}
	for _, containers := range secrets {
		slices.Sort(containers)
	}
	require.Equal(t, map[string][]string{"comfyhub-gossip/key": {"agent", "hub"}, "comfyhub-hub/secret": {"hub"}, "comfyhub-redis/password": {"hub", "redis"}}, secrets)
}
