// The npm client as it is published, over everything it offers for JSON that is served.
const assert = require("node:assert/strict");
const { sirixInit, DBType, Insert, MetaType } = require("sirixdb");

const DOCUMENT = '{"fruit":[{"name":"apple","price":1.50},{"name":"pear","price":2}],"open":true}';
// The keys of nodes never change; these are the ones of DOCUMENT, in its order.
const [ROOT, FRUIT, APPLE] = [1, 2, 3];

async function main(url) {
    const sirix = await sirixInit(url, { username: "anna", password: "secret", clientId: "assent" });
    await sirix.deleteAll();
    const database = sirix.database("shop", DBType.JSON);
    await database.create();
    const resource = database.resource("stock");
    await assert.rejects(resource.exists());
    assert.equal(await (await resource.create(DOCUMENT)).text(), DOCUMENT);
    assert.equal(await resource.exists(), true);
    assert.deepEqual(await sirix.getInfo(), [{ name: "shop", type: "json", resources: ["stock"] }]);
    assert.deepEqual(await database.getInfo(), { resources: ["stock"] });
    assert.deepEqual(await resource.read({ nodeId: APPLE }), { name: "apple", price: 1.5 });
    for (const metaType of Object.values(MetaType)) {
        const told = await resource.readWithMetadata({ nodeId: FRUIT, metaType });
        assert.equal(told.metadata.nodeKey, FRUIT, metaType);
    }
    const etag = await resource.getEtag(FRUIT);
    await resource.update({ nodeId: FRUIT, data: '{"name":"fig"}', etag });
    await assert.rejects(resource.update({ nodeId: FRUIT, data: "7", etag }), /"statusCode":412/);
    await resource.update({ nodeId: APPLE, data: '"left"', insert: Insert.LEFT });
    await resource.update({ nodeId: APPLE, data: '"right"', insert: Insert.RIGHT });
    await resource.update({ nodeId: ROOT, data: '{"new":1}' });
    const now = await resource.read();
    assert.equal(now.new, 1);
    assert.deepEqual(now.fruit.slice(1, 4), ["left", { name: "apple", price: 1.5 }, "right"]);
    await resource.delete(APPLE, await resource.getEtag(APPLE));
    assert.equal((await resource.read({ nodeId: FRUIT })).length, 4);
    const history = await resource.history();
    assert.deepEqual(history.map((one) => one.revision), [6, 5, 4, 3, 2, 1]);
    assert.deepEqual(await resource.read({ revision: 1, nodeId: APPLE }), { name: "apple", price: 1.5 });
    assert.deepEqual(await resource.read({ revision: new Date(history[0].revisionTimestamp) }), await resource.read());
    assert.deepEqual((await resource.read({ revision: [1, 3] })).sirix.map((one) => one.revisionNumber), [1, 2, 3]);
    const { diffs } = await resource.diff(1, 2);
    assert.deepEqual(diffs.map((one) => Object.keys(one)[0]), ["insert"]);
    assert.equal((await resource.read({ nodeId: FRUIT, nextTopLevelNodes: 2 })).length, 2);
    // Every argument of the calls that nothing above gives.
    const times = [...history].reverse().map((one) => new Date(one.revisionTimestamp));
    const several = (await resource.read({ revision: [times[0], times[2]] })).sirix;
    assert.equal(several[several.length - 1].revisionNumber, 3);
    assert.deepEqual(await resource.read({ maxLevel: 1 }), {});
    assert.equal((await resource.read({ nodeId: FRUIT, maxChildren: 1 })).length, 1);
    assert.ok(JSON.stringify(await resource.read({ numberOfNodes: 3 })).length < JSON.stringify(now).length);
    const first = (await resource.readWithMetadata({ nodeId: FRUIT, metaType: MetaType.KEY })).value[0].metadata.nodeKey;
    assert.equal((await resource.read({ nodeId: FRUIT, nextTopLevelNodes: 2, lastTopLevelNodeKey: first }))[0], "left");
    assert.equal((await resource.diff(times[0], times[1])).diffs.length, 1);
    assert.equal((await resource.diff(1, 2, { nodeId: FRUIT, maxLevel: 2 })).diffs.length, 1);
    assert.deepEqual((await resource.diff(1, 2, { nodeId: APPLE })).diffs, []);
    await assert.rejects(sirix.query({ query: "1 + 1" }), /"statusCode":501/);
    await resource.delete();
    await database.delete();
    assert.deepEqual(await sirix.getInfo(), []);
    sirix.shutdown();
    console.log("sirixdb: done");
}

main(process.argv[2]).catch((error) => {
    console.error(error);
    process.exit(1);
});
