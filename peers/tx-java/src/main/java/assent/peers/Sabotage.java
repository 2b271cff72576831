package assent.peers;

/** Ways to be wrong on purpose: the self-check has to find each. */
enum Sabotage {
    NONE,
    /** The first branch votes read-only, so that it is never told to commit. */
    READ_ONLY,
    /** The second branch is never enlisted, so that there is one phase only. */
    ONE_BRANCH;

    static Sabotage of(String word) {
        return switch (word) {
            case "none" -> NONE;
            case "read-only" -> READ_ONLY;
            case "one-branch" -> ONE_BRANCH;
            default -> throw new IllegalArgumentException("--sabotage is none, read-only or one-branch, not " + word);
        };
    }
}
