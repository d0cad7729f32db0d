package ec2

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// group is AWS with one Auto Scaling group. The SDK's client, which is generated from the API's model of
// 2011-01-01, writes its requests and reads its answers; the rules and messages are as AWS documents them.
type group struct {
	t      *testing.T
	server *httptest.Server

	mu       sync.Mutex
	min, max int
	desired  int
	made     int
	machines []*machine
	calls    []string
	// fail answers an action with an error's code and message.
	fail map[string][2]string
}

type machine struct {
	InstanceID           string `xml:"InstanceId"`
	AvailabilityZone     string
	LifecycleState       string
	HealthStatus         string
	ProtectedFromScaleIn bool
}

func newGroup(t *testing.T) *group {
	g := &group{t: t, max: 10, fail: map[string][2]string{}}
	g.server = httptest.NewServer(g)
	t.Cleanup(g.server.Close)
	return g
}

// provider calls the fake, with credentials from the environment as the default chain has them.
func (g *group) provider() Group {
	g.t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	g.t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	g.t.Setenv("AWS_CA_BUNDLE", "")
	g.t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	return Group{Name: "a10g", Region: "eu-central-1", Options: []func(*config.LoadOptions) error{
		config.WithBaseEndpoint(g.server.URL), config.WithRetryMaxAttempts(1),
	}}
}

// ServeHTTP implements http.Handler.
func (g *group) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	assert.NoError(g.t, r.ParseForm())
	assert.Contains(g.t, r.Header.Get("Authorization"), "/eu-central-1/autoscaling/aws4_request")
	assert.Equal(g.t, "2011-01-01", r.Form.Get("Version"))
	action := r.Form.Get("Action")
	g.calls = append(g.calls, action)
	if e, ok := g.fail[action]; ok {
		g.refuse(w, e[0], e[1])
		return
	}
	switch action {
	case "DescribeAutoScalingGroups":
		if r.Form.Get("AutoScalingGroupNames.member.1") == "a10g" {
			g.answer(w, action, g.describe())
		} else {
			g.answer(w, action, "<AutoScalingGroups/>")
		}
	case "SetDesiredCapacity":
		g.setDesired(w, r.Form)
	case "SetInstanceProtection":
		g.protect(w, r.Form)
	case "TerminateInstanceInAutoScalingGroup":
		g.terminate(w, r.Form)
	default:
		g.refuse(w, "InvalidAction", action)
	}
}

func (g *group) answer(w http.ResponseWriter, action, result string) {
	w.Header().Set("Content-Type", "text/xml")
	_, _ = fmt.Fprintf(w, `<%[1]sResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/"><%[1]sResult>%[2]s</%[1]sResult><ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></%[1]sResponse>`, action, result)
}

func (g *group) refuse(w http.ResponseWriter, code, message string) {
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = fmt.Fprintf(w, `<ErrorResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/"><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error><RequestId>1</RequestId></ErrorResponse>`, code, message)
}

func (g *group) describe() string {
	list, err := xml.Marshal(g.machines)
	require.NoError(g.t, err)
	members := strings.NewReplacer("<machine>", "<member>", "</machine>", "</member>").Replace(string(list))
	return fmt.Sprintf(`<AutoScalingGroups><member><AutoScalingGroupName>a10g</AutoScalingGroupName><MinSize>%d</MinSize><MaxSize>%d</MaxSize><DesiredCapacity>%d</DesiredCapacity><Instances>%s</Instances></member></AutoScalingGroups>`,
		g.min, g.max, g.desired, members)
}

func (g *group) setDesired(w http.ResponseWriter, form url.Values) {
	n, err := strconv.Atoi(form.Get("DesiredCapacity"))
	require.NoError(g.t, err)
	if n < g.min || n > g.max {
		g.refuse(w, "ValidationError", "New SetDesiredCapacity value is outside of the group's bounds")
		return
	}
	g.desired = n
	for g.alive() < n {
		g.made++
		g.machines = append(g.machines, &machine{InstanceID: fmt.Sprintf("i-%017x", g.made), AvailabilityZone: "eu-central-1a", LifecycleState: "Pending", HealthStatus: "Healthy"})
	}
	for _, m := range slices.Backward(g.machines) {
		if g.alive() > n && !m.ProtectedFromScaleIn && !strings.HasPrefix(m.LifecycleState, "Terminat") {
			m.LifecycleState = "Terminating"
		}
	}
	g.answer(w, "SetDesiredCapacity", "")
}

func (g *group) protect(w http.ResponseWriter, form url.Values) {
	for n := 1; form.Has(fmt.Sprint("InstanceIds.member.", n)); n++ {
		m := g.machine(form.Get(fmt.Sprint("InstanceIds.member.", n)))
		if m == nil || m.LifecycleState != "InService" {
			g.refuse(w, "ValidationError", "The instance is not in InService")
			return
		}
		m.ProtectedFromScaleIn = form.Get("ProtectedFromScaleIn") == "true"
	}
	g.answer(w, "SetInstanceProtection", "")
}

func (g *group) terminate(w http.ResponseWriter, form url.Values) {
	m := g.machine(form.Get("InstanceId"))
	switch {
	case m == nil || strings.HasPrefix(m.LifecycleState, "Terminat"):
		g.refuse(w, "ValidationError", "Instance Id not found - No managed instance found for instance ID")
		return
	case form.Get("ShouldDecrementDesiredCapacity") != "true":
		require.Fail(g.t, "another would take its place")
	case g.desired <= g.min:
		g.refuse(w, "ValidationError", "Currently, desiredSize equals minSize. Terminating instance without replacement will violate group's min size constraint.")
		return
	}
	m.LifecycleState = "Terminating"
	g.desired--
	g.answer(w, "TerminateInstanceInAutoScalingGroup", "")
}

func (g *group) machine(id string) *machine {
	for _, m := range g.machines {
		if m.InstanceID == id {
			return m
		}
	}
	return nil
}

func (g *group) alive() (n int) {
	for _, m := range g.machines {
		if !strings.HasPrefix(m.LifecycleState, "Terminat") {
			n++
		}
	}
	return n
}

// up lets all machines serve.
func (g *group) up() {
	for _, m := range g.machines {
		if m.LifecycleState == "Pending" {
			m.LifecycleState = "InService"
		}
	}
}

// ids are those of the machines that are there.
func (g *group) ids() (list []string) {
	for _, m := range g.machines {
		if !strings.HasPrefix(m.LifecycleState, "Terminat") {
			list = append(list, m.InstanceID)
		}
	}
	return list
}
