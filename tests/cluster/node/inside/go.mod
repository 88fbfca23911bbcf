// A module of its own for the sake of its name: packages that are ready to be initialised are
// taken in the order of their paths, and this one must come before those of Kubernetes.
module cluster.inside

go 1.26.0

require golang.org/x/sys v0.40.0
